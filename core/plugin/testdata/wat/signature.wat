;; A judger with an import that it may not have.
(module
  (import "penstock_v1" "field_read" (func (param i32) (result i64)))
  (memory (export "memory") 1)
  (func (export "penstock_v1") (result i32) (i32.const 0))
  (func (export "judge") (result i32) (i32.const 0)))
