/* The judger exact in C. */
#include "penstock.h"

static char answer[4096], text[4096];

PENSTOCK_EXPORT("judge") int judge(void) {
  int n = penstock_field("/task/answer", answer, sizeof answer);
  if (n < 0) return penstock_error("the task has no answer");
  int m = penstock_field("/rollout/final_text", text, sizeof text);
  penstock_output(penstock_equal(answer, n, text, m) ? "{\"reward\":1}" : "{\"reward\":0}");
  return 0;
}
