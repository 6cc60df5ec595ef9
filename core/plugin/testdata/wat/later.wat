;; A judger of a later version of the contract: what this one doesn't know, a
;; method of any type and a global, is nothing to it.
(module
  (import "penstock_v1" "output_write" (func $out (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{\"reward\":1}")
  (global (export "judge_later_settings") i32 (i32.const 7))
  (func (export "penstock_v1") (result i32) (i32.const 3))
  (func (export "judge_later") (param i64 f64) (result i64) (i64.const 0))
  (func (export "judge") (result i32)
    (call $out (i32.const 0) (i32.const 12))
    (i32.const 0)))
