;; A judger whose reward is no finite number: its reply is 1e999.
(module
  (import "penstock_v1" "output_write" (func $out (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{\"reward\":1e999}")
  (func (export "penstock_v1") (result i32) (i32.const 0))
  (func (export "judge") (result i32) (call $out (i32.const 0) (i32.const 16)) (i32.const 0)))
