;; A judger whose export has a wrong signature.
(module
  (memory (export "memory") 1)
  (func (export "penstock_v1") (result i32) (i32.const 0))
  (func (export "judge") (param i32) (result i32) (i32.const 0)))
