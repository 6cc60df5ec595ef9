;; A judger whose reward is the number of times that configure was called in
;; its instance, plus 10 for each call of judge before this one.
(module
  (import "penstock_v1" "output_write" (func $out (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{\"reward\":00}")
  (global $configured (mut i32) (i32.const 0))
  (global $judged (mut i32) (i32.const 0))
  (func (export "penstock_v1") (result i32) (i32.const 0))
  (func (export "configure") (result i32)
    (global.set $configured (i32.add (global.get $configured) (i32.const 1))) (i32.const 0))
  (func (export "judge") (result i32)
    (i32.store8 (i32.const 10) (i32.add (i32.const 48) (global.get $judged)))
    (i32.store8 (i32.const 11) (i32.add (i32.const 48) (global.get $configured)))
    (global.set $judged (i32.add (global.get $judged) (i32.const 1)))
    (if (i32.eqz (i32.sub (i32.load8_u (i32.const 10)) (i32.const 48)))
      (then (i32.store8 (i32.const 10) (i32.const 32))))
    (call $out (i32.const 0) (i32.const 13))
    (i32.const 0)))
