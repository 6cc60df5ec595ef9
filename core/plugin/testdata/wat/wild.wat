;; A hostile judger. The first letter of /input/act says what it does:
;; trap, loop, grow, flood, range (of a pointer), stack, error; else it judges.
(module
  (import "penstock_v1" "field_read" (func $field (param i32 i32 i32 i32) (result i32)))
  (import "penstock_v1" "output_write" (func $out (param i32 i32)))
  (import "penstock_v1" "error_write" (func $err (param i32 i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "/input/act")
  (data (i32.const 64) "{\"reward\":1}")
  (data (i32.const 80) "not today")
  (func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))
  (func (export "penstock_v1") (result i32) (i32.const 0))
  (func (export "judge") (result i32)
    (local $c i32)
    (if (i32.gt_s (call $field (i32.const 0) (i32.const 10) (i32.const 1024) (i32.const 16)) (i32.const 0))
      (then (local.set $c (i32.load8_u (i32.const 1024)))))
    (if (i32.eq (local.get $c) (i32.const 116)) (then unreachable))                                   ;; t
    (if (i32.eq (local.get $c) (i32.const 108)) (then (loop $l (br $l))))                              ;; l
    (if (i32.eq (local.get $c) (i32.const 103)) (then (loop $l
      (if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then unreachable)) (br $l))))          ;; g
    (if (i32.eq (local.get $c) (i32.const 102)) (then (loop $l
      (call $out (i32.const 0) (i32.const 65536)) (br $l))))                                           ;; f
    (if (i32.eq (local.get $c) (i32.const 114)) (then (call $out (i32.const -8) (i32.const 100))))     ;; r
    (if (i32.eq (local.get $c) (i32.const 115)) (then (drop (call $deep (i32.const 0)))))              ;; s
    (if (i32.eq (local.get $c) (i32.const 101))
      (then (call $err (i32.const 80) (i32.const 9)) (return (i32.const 1))))                          ;; e
    (call $out (i32.const 64) (i32.const 12))
    (i32.const 0)))
