#!/usr/bin/env python3
"""A judger in Python: a right answer in few digits."""
import penstock


@penstock.judger("digits", config={"most": int})
def digits(r):
    """The answer is right, and has no more than so many digits."""
    text = r.final_text.strip()
    right = text == str(r.task["answer"])
    return penstock.verdict(float(right and len(text) <= r.config["most"]), components={"digits": len(text)})


if __name__ == "__main__":
    penstock.main()
