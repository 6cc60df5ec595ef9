;; A module that doesn't say it is a plugin.
(module
  (memory (export "memory") 1)
  (func (export "judge") (result i32) (i32.const 0)))
