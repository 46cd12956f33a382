"""FileCheck's verdicts are LLVM's; whatever a person mistypes is an error; nothing is printed.

The verdicts in ``VERDICTS`` are those of LLVM 19.1.7's own FileCheck, run on the same checks and text. LLVM 14.0.6 gives
the same but for one: "a variable with a group in it", where it counts groups wrongly.
"""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.model.matching.filecheck import Change, ChecksError, EmptyText, Kind, changes, parse, run
from runner.model.matching.time_limit import PatternTooSlow

HOLDS = 0
"""Any other verdict is the line of the directive that failed."""

SEED = "CHECK: conv\nCHECK: .run(\nCHECK-SAME: frozen\nCHECK-NOT: frozen\nCHECK-NEXT: return\n"

VERDICTS: tuple[tuple[str, str, str, int], ...] = (
    ("found", "CHECK: a\n", "x\na\n", HOLDS),
    ("absent", "CHECK: a\n", "x\ny\n", 1),
    ("in order", "CHECK: a\nCHECK: b\n", "a\nb\n", HOLDS),
    ("out of order", "CHECK: a\nCHECK: b\n", "b\na\n", 2),
    ("in order on one line", "CHECK: a\nCHECK: b\n", "a b\n", HOLDS),
    ("out of order on one line", "CHECK: a\nCHECK: b\n", "b a\n", 2),
    ("a match is used once", "CHECK: a\nCHECK: a\n", "a\n", 2),
    ("two matches for two checks", "CHECK: a\nCHECK: a\n", "aa\n", HOLDS),
    ("part of a word", "CHECK: froz\n", "frozen\n", HOLDS),
    ("case matters", "CHECK: Frozen\n", "frozen\n", 1),
    ("no newline at the end", "CHECK: a\nCHECK: b\n", "a\nb", HOLDS),
    ("special characters are text", "CHECK: .run(*[a]+?^$|){2}\n", "x .run(*[a]+?^$|){2}\n", HOLDS),
    ("a dot is a dot", "CHECK: .run(\n", "xrun(\n", 1),
    ("non-ASCII text", "CHECK: größe = 1\n", "größe = 1\n", HOLDS),
    ("without a space behind the colon", "CHECK:a\n", "a\n", HOLDS),
    ("behind comment leaders", "# CHECK: a\n// CHECK: b\n; CHECK: c\n", "a\nb\nc\n", HOLDS),
    ("next line", "CHECK: a\nCHECK-NEXT: b\n", "a\nb\n", HOLDS),
    ("next line, later in it", "CHECK: a\nCHECK-NEXT: b\n", "a x\ny b\n", HOLDS),
    ("next line skipped", "CHECK: a\nCHECK-NEXT: b\n", "a\n\nb\n", 2),
    ("next on the same line", "CHECK: a\nCHECK-NEXT: b\n", "a b\n", 2),
    ("next on the same line and on the next", "CHECK: a\nCHECK-NEXT: b\n", "a b\nb\n", 2),
    ("next is counted from where the match ended", "CHECK: a{{[[:space:]]}}b\nCHECK-NEXT: c\n", "a\nb\nc\n", HOLDS),
    ("next behind the last line", "CHECK: a\nCHECK-NEXT: b\n", "a\n", 2),
    ("next may reach beyond its line", "CHECK: a\nCHECK-NEXT: b{{[[:space:]]}}c\n", "a\nb\nc\n", HOLDS),
    ("next behind the last line, no newline", "CHECK: a\nCHECK-NEXT: b\n", "a", 2),
    ("next is the last line, no newline", "CHECK: a\nCHECK-NEXT: b\n", "a\nb", HOLDS),
    ("next thrice", "CHECK: a\nCHECK-NEXT: b\nCHECK-NEXT: c\nCHECK-NEXT: d\n", "a\nb\nc\nd\n", HOLDS),
    ("the first match decides, even when a later one has its next", "CHECK: a\nCHECK-NEXT: b\n", "a\nx\na\nb\n", 2),
    ("next of an expression that matches any line", "CHECK: a\nCHECK-NEXT: {{.+}}\nCHECK-NEXT: c\n", "a\nb\nc\n", HOLDS),
    ("same line", "CHECK: a\nCHECK-SAME: b\n", "a b\n", HOLDS),
    ("same line, but before", "CHECK: b\nCHECK-SAME: a\n", "a b\n", 2),
    ("same, but on the next line", "CHECK: a\nCHECK-SAME: b\n", "a\nb\n", 2),
    ("same twice", "CHECK: a\nCHECK-SAME: b\nCHECK-SAME: c\n", "a b c\n", HOLDS),
    ("same of the end of the line", "CHECK: a\nCHECK-SAME: {{$}}\n", "a\nb\n", HOLDS),
    ("same of the end of the line, with text left", "CHECK: a\nCHECK-SAME: {{^ *$}}\n", "a b\n", 2),
    ("same after next", "CHECK: a\nCHECK-NEXT: b\nCHECK-SAME: c\n", "a\nb c\n", HOLDS),
    ("not before the first match", "CHECK-NOT: x\nCHECK: a\n", "x\na\n", 1),
    ("not before the first match, held", "CHECK-NOT: x\nCHECK: a\n", "y\na\nx\n", HOLDS),
    ("not between", "CHECK: a\nCHECK-NOT: x\nCHECK: b\n", "a\nx\nb\n", 2),
    ("not between, held", "CHECK: a\nCHECK-NOT: x\nCHECK: b\n", "x\na\nb\nx\n", HOLDS),
    ("not between, on the line of the first match", "CHECK: a\nCHECK-NOT: x\nCHECK: b\n", "a x\nb\n", 2),
    ("not between, on the line of the second match", "CHECK: a\nCHECK-NOT: x\nCHECK: b\n", "a\nx b\n", 2),
    ("not of what the next directive matches", "CHECK: a\nCHECK-NOT: b\nCHECK: b\n", "a\nb\n", HOLDS),
    ("not of a part of what the next directive matches", "CHECK: a\nCHECK-NOT: b\nCHECK: abc\n", "a\nabc\n", HOLDS),
    ("not across the start of the next match", "CHECK: a\nCHECK-NOT: x b\nCHECK: b\n", "a\nx b\n", HOLDS),
    ("not after the last match", "CHECK: a\nCHECK-NOT: x\n", "a\nx\n", 2),
    ("not after the last match, no newline", "CHECK: a\nCHECK-NOT: x\n", "a\nx", 2),
    ("not after the last match: the last character", "CHECK: a\nCHECK-NOT: )\n", "a\nf()", 2),
    ("not after the last match, held", "CHECK: a\nCHECK-NOT: x\n", "x\na\ny\n", HOLDS),
    ("not right after the last match at the end", "CHECK: a\nCHECK-NOT: x\n", "ax", 2),
    ("two nots, the second fails", "CHECK: a\nCHECK-NOT: x\nCHECK-NOT: y\nCHECK: b\n", "a\ny\nb\n", 3),
    ("nots in any order", "CHECK: a\nCHECK-NOT: x\nCHECK-NOT: y\nCHECK: b\n", "a\ny x\nb\n", 2),
    ("not, then the positive is missing", "CHECK: a\nCHECK-NOT: x\nCHECK: b\n", "a\nx\n", 3),
    ("not before next", "CHECK: a\nCHECK-NOT: x\nCHECK-NEXT: b\n", "a\nb\n", HOLDS),
    ("not before next, on the rest of the line", "CHECK: a\nCHECK-NOT: x\nCHECK-NEXT: b\n", "a x\nb\n", 2),
    ("not before next, on the next line before the match", "CHECK: a\nCHECK-NOT: x\nCHECK-NEXT: b\n", "a\nx b\n", 2),
    ("not before next, behind its match", "CHECK: a\nCHECK-NOT: x\nCHECK-NEXT: b\n", "a\nb x\n", HOLDS),
    ("not before next: next is judged first", "CHECK: a\nCHECK-NOT: x\nCHECK-NEXT: b\n", "a\nx\nb\n", 3),
    ("not before same", "CHECK: a\nCHECK-NOT: x\nCHECK-SAME: b\n", "a x b\n", 2),
    ("not with an expression", "CHECK: a\nCHECK-NOT: x{{[0-9]}}\nCHECK: b\n", "a\nxy x7\nb\n", 2),
    ("the seed's chain", SEED, "buf = conv(x)\nk.run(buf, frozen_1)\nreturn (buf,)\n", HOLDS),
    ("the seed's chain, a second frozen", SEED, "buf = conv(x)\nk.run(buf, frozen_1, frozen_2)\nreturn (buf,)\n", 4),
    ("the seed's chain, frozen in what is returned", SEED, "buf = conv(x)\nk.run(buf, frozen_1)\nreturn (frozen_1,)\n", HOLDS),
    ("the seed's chain, a line between", SEED, "buf = conv(x)\nk.run(buf, frozen_1)\ndel buf\nreturn (buf,)\n", 5),
    ("the seed's chain, nothing frozen", SEED, "buf = conv(x)\nk.run(buf)\nreturn (frozen_1,)\n", 3),
    ("any order", "CHECK-DAG: a\nCHECK-DAG: b\n", "b\na\n", HOLDS),
    ("any order, one missing", "CHECK-DAG: a\nCHECK-DAG: b\n", "b\n", 1),
    ("dags do not share a match", "CHECK-DAG: a\nCHECK-DAG: a\n", "a\n", 2),
    ("dags do not overlap", "CHECK-DAG: ab\nCHECK-DAG: bc\n", "abc\n", 2),
    ("a dag looks beyond an overlap", "CHECK-DAG: ab\nCHECK-DAG: bc\n", "abc bc\n", HOLDS),
    ("a dag looks again right behind an overlap", "CHECK-DAG: a\nCHECK-DAG: {{ab|b}}\n", "ab\n", HOLDS),
    ("dags may touch", "CHECK-DAG: a\nCHECK-DAG: b\n", "ab\n", HOLDS),
    ("a dag looks between two others", "CHECK-DAG: a1\nCHECK-DAG: a2\nCHECK-DAG: a{{.}}\n", "a1 a3 a2\n", HOLDS),
    ("check after dags starts behind the last of them", "CHECK-DAG: a\nCHECK-DAG: b\nCHECK: c\n", "b\nc\na\n", 3),
    ("check after dags, held", "CHECK-DAG: a\nCHECK-DAG: b\nCHECK: c\n", "b\na\nc\n", HOLDS),
    ("dags start behind the match before", "CHECK: c\nCHECK-DAG: a\nCHECK-DAG: b\n", "a\nc\nb\na\n", HOLDS),
    ("dags start behind the match before, one is earlier", "CHECK: c\nCHECK-DAG: a\nCHECK-DAG: b\n", "a\nc\nb\n", 2),
    ("not between dags divides them", "CHECK-DAG: a\nCHECK-NOT: x\nCHECK-DAG: b\n", "b\na\n", 3),
    ("not between dags", "CHECK-DAG: a\nCHECK-NOT: x\nCHECK-DAG: b\n", "a\nx\nb\n", 2),
    ("not between dags, held", "CHECK-DAG: a\nCHECK-NOT: x\nCHECK-DAG: b\n", "x\na\nb\nx\n", HOLDS),
    ("not before dags ends at the first of them", "CHECK: c\nCHECK-NOT: x\nCHECK-DAG: a\nCHECK-DAG: b\n", "c\nb\nx\na\n", HOLDS),
    ("not before dags", "CHECK: c\nCHECK-NOT: x\nCHECK-DAG: a\nCHECK-DAG: b\n", "c\nx\nb\na\n", 2),
    ("not after dags begins behind the last of them", "CHECK-DAG: a\nCHECK-DAG: b\nCHECK-NOT: x\n", "b x a\n", HOLDS),
    ("not after dags", "CHECK-DAG: a\nCHECK-DAG: b\nCHECK-NOT: x\n", "b a x", 3),
    ("next after dags", "CHECK: c\nCHECK-DAG: a\nCHECK-DAG: b\nCHECK-NEXT: d\n", "c\nb\na\nd\n", HOLDS),
    ("next after dags, counted from the last of them", "CHECK: c\nCHECK-DAG: a\nCHECK-DAG: b\nCHECK-NEXT: d\n", "c\nb\na\n\nd\n", 4),
    ("dag with a variable of another", "CHECK-DAG: def [[F:[a-z]+]]\nCHECK-DAG: call [[F]]\n", "call g\ndef g\n", HOLDS),
    ("a label", "CHECK-LABEL: def f\nCHECK: x\n", "def f\nx\n", HOLDS),
    ("no such label", "CHECK-LABEL: def f\nCHECK: x\n", "def g\nx\n", 1),
    ("a match belongs to its block", "CHECK-LABEL: def f\nCHECK: x\nCHECK-LABEL: def g\nCHECK: x\n", "def f\nx\ndef g\nx\n", HOLDS),
    ("a match beyond the block", "CHECK-LABEL: def f\nCHECK: x\nCHECK-LABEL: def g\n", "def f\ny\ndef g\nx\n", 2),
    ("labels in the wrong order", "CHECK-LABEL: def f\nCHECK-LABEL: def g\n", "def g\ndef f\n", 2),
    ("the same label twice", "CHECK-LABEL: def f\nCHECK-LABEL: def f\n", "def f\n", 2),
    ("a block begins where the label was first found to end", "CHECK: a\nCHECK-LABEL: {{aab|a}}\nCHECK: b\n", "aab\n", 3),
    ("not ends at the label", "CHECK-LABEL: def f\nCHECK-NOT: x\nCHECK-LABEL: def g\n", "def f\ny\ndef g\nx\n", HOLDS),
    ("not before a label", "CHECK-LABEL: def f\nCHECK-NOT: x\nCHECK-LABEL: def g\n", "def f\nx\ndef g\n", 2),
    ("next to a label", "CHECK-LABEL: def f\nCHECK-NEXT: x\n", "def f():\nx\n", HOLDS),
    ("same as a label", "CHECK-LABEL: def f\nCHECK-SAME: (a)\n", "def f(a)\n", HOLDS),
    ("a dag does not cross a label", "CHECK-LABEL: def f\nCHECK-DAG: x\nCHECK-DAG: y\nCHECK-LABEL: def g\n", "def f\nx\ndef g\ny\n", 3),
    ("a check before the label looks before it only", "CHECK: x\nCHECK-LABEL: def f\n", "def f\nx\n", 1),
    ("a missing label is said first", "CHECK: nowhere\nCHECK-LABEL: def f\n", "x\n", 2),
    ("an empty line", "CHECK: a\nCHECK-EMPTY:\nCHECK-NEXT: b\n", "a\n\nb\n", HOLDS),
    ("no empty line", "CHECK: a\nCHECK-EMPTY:\nCHECK-NEXT: b\n", "a\nb\n", 2),
    ("two empty lines", "CHECK: a\nCHECK-EMPTY:\nCHECK-EMPTY:\nCHECK-NEXT: b\n", "a\n\n\nb\n", HOLDS),
    ("one empty line too many", "CHECK: a\nCHECK-EMPTY:\nCHECK-NEXT: b\n", "a\n\n\nb\n", 3),
    ("a line of blanks is not empty", "CHECK: a\nCHECK-EMPTY:\n", "a\n  \n", 2),
    ("the empty line comes later", "CHECK: a\nCHECK-EMPTY:\n", "a\nb\n\nc\n", 2),
    ("behind the last newline is an empty line", "CHECK: a\nCHECK-EMPTY:\n", "a\n", HOLDS),
    ("without a newline there is none", "CHECK: a\nCHECK-EMPTY:\n", "a", 2),
    ("text on the rest of the line, then empty", "CHECK: a\nCHECK-EMPTY:\n", "a b\n\n", HOLDS),
    ("not before empty", "CHECK: a\nCHECK-NOT: x\nCHECK-EMPTY:\n", "a x\n\n", 2),
    ("as many", "CHECK-COUNT-3: a\n", "a\na a\n", HOLDS),
    ("too few", "CHECK-COUNT-3: a\n", "a\na\n", 1),
    ("more than counted", "CHECK-COUNT-2: a\n", "a\na\na\n", HOLDS),
    ("exactly so many, by a not behind", "CHECK-COUNT-2: a\nCHECK-NOT: a\n", "a\na\na\n", 2),
    ("exactly so many, held", "CHECK-COUNT-2: a\nCHECK-NOT: a\n", "a\na\n", HOLDS),
    ("check continues behind the last counted", "CHECK-COUNT-2: a\nCHECK: b\n", "a\nb\na\n", 2),
    ("not before a count ends at the first", "CHECK: c\nCHECK-NOT: x\nCHECK-COUNT-2: a\n", "c\na\nx\na\n", HOLDS),
    ("next after a count", "CHECK-COUNT-2: a\nCHECK-NEXT: b\n", "a\na\nb\n", HOLDS),
    ("a count of one", "CHECK-COUNT-1: a\n", "a\n", HOLDS),
    ("expression", "CHECK: buf{{[0-9]+}} =\n", "buf12 = x\n", HOLDS),
    ("expression, no match", "CHECK: buf{{[0-9]+}} =\n", "buf = x\n", 1),
    ("alternatives", "CHECK: {{mm|addmm}}(\n", "addmm(\n", HOLDS),
    ("alternatives stand alone beside text", "CHECK: a{{b|c}}d\n", "abd\n", HOLDS),
    ("alternatives do not reach the text beside them", "CHECK: a{{b|c}}d\n", "ab\n", 1),
    ("the longest alternative wins", "CHECK: {{a|ab}}\nCHECK-SAME: {{^}}c\n", "abc\n", HOLDS),
    ("the longest alternative is captured", "CHECK: [[X:a|ab]]\nCHECK-NEXT: <[[X]]>\n", "ab\n<ab>\n", HOLDS),
    ("the longest of repeated alternatives", "CHECK: {{(a|ab)(c|bcd)*}}\nCHECK-SAME: {{^}};\n", "abcd;\n", HOLDS),
    ("the longest alternative is on the next line", "CHECK: {{a|a[[:space:]]b}}\nCHECK-SAME: {{^}}c\n", "a\nbc\n", HOLDS),
    ("a longer alternative that needs the end of the line", "CHECK: {{a|ab$}}\nCHECK-SAME: {{^}}bc\n", "abc\n", HOLDS),
    ("the leftmost match wins over a longer one", "CHECK: {{b|aaa}}\nCHECK-SAME: {{^}}aaa\n", "baaa\n", HOLDS),
    ("a dot does not match a newline", "CHECK: a{{.}}b\n", "a\nb\n", 1),
    ("a negated set does not match a newline", "CHECK: a{{[^x]}}b\n", "a\nb\n", 1),
    ("space matches a newline", "CHECK: a{{[[:space:]]}}b\n", "a\nb\n", HOLDS),
    ("blank does not match a newline", "CHECK: a{{[[:blank:]]}}b\n", "a\nb\n", 1),
    ("start of a line", "CHECK: {{^}}b\n", "ab\nb\n", HOLDS),
    ("start of a line, none", "CHECK: {{^}}b\n", "ab\n", 1),
    ("what is left after a match starts a line", "CHECK: a\nCHECK: {{^}}b\n", "ab\n", HOLDS),
    ("end of a line", "CHECK: a{{$}}\n", "ab\na\n", HOLDS),
    ("end of a line, none", "CHECK: a{{$}}\n", "ab\n", 1),
    ("end of the text", "CHECK: a{{$}}\n", "ba", HOLDS),
    ("a class of characters", "CHECK: x{{[[:alpha:]_]+[[:digit:]]}}y\n", "xab_7y\n", HOLDS),
    ("punctuation", "CHECK: x{{[[:punct:]]+}}y\n", "x]^-\\\\&~y\n", HOLDS),
    ("a bracket in a set", "CHECK: x{{[]a]+}}y\n", "x]a]y\n", HOLDS),
    ("no bracket in a set", "CHECK: x{{[^]a]+}}y\n", "x[b[y\n", HOLDS),
    ("a hyphen in a set", "CHECK: x{{[a-]+}}y\n", "x-a-y\n", HOLDS),
    ("a backslash in a set is itself", "CHECK: x{{[\\]+}}y\n", "x\\\\y\n", HOLDS),
    ("counted repetition", "CHECK: {{(a{2,3}b)}}\n", "aab\n", HOLDS),
    ("counted repetition, too few", "CHECK: {{(a{2,3}b)}}\n", "ab\n", 1),
    ("a brace that counts nothing is text", "CHECK: {{a{,2}b}}\n", "a{,2}b\n", HOLDS),
    ("escaped characters", "CHECK: {{a\\.b\\(c\\)}}\n", "a.b(c)\n", HOLDS),
    ("an escaped dot is a dot", "CHECK: {{a\\.b}}\n", "axb\n", 1),
    ("a brace behind an expression", "CHECK: {{a+}}}\n", "aa}\n", HOLDS),
    ("several expressions", "CHECK: {{a|b}}x{{c|d}}\n", "bxc\n", HOLDS),
    (
        "brackets of code in an expression",
        "CHECK: out_ptr{{[0-9]+}} + ({{x[0-9]}}), {{None|xmask}})\n",
        "tl.store(out_ptr0 + (x0), tmp2, None)\ntl.store(out_ptr1 + (x1), xmask)\n",
        HOLDS,
    ),
    ("a variable on a later line", "CHECK: [[B:buf[0-9]+]] =\nCHECK: del [[B]]\n", "buf3 = 1\ndel buf3\n", HOLDS),
    ("a variable on a later line, another value", "CHECK: [[B:buf[0-9]+]] =\nCHECK: del [[B]]\n", "buf3 = 1\ndel buf4\n", 2),
    ("a variable on its own line", "CHECK: [[X:[a-z]+]] = [[X]] +\n", "ab = ab + 1\n", HOLDS),
    ("a variable on its own line, another value", "CHECK: [[X:[a-z]+]] = [[X]] +\n", "ab = cd + 1\n", 1),
    ("a variable followed by a digit", "CHECK: [[X:[a-z]+]] [[X]]1\n", "ab ab1\n", HOLDS),
    ("a variable's value is text", "CHECK: [[X:a.c]]\nCHECK: ={{^}}[[X]]\n", "a.c\n=abc\n", 2),
    ("a variable's value has special characters", "CHECK: x [[X:[^ ]+]]\nCHECK: y [[X]]\n", "x f(*)\ny f(*)\n", HOLDS),
    ("a variable defined again", "CHECK: [[X:a|b]]\nCHECK: [[X:a|b]]\nCHECK: use [[X]]\n", "a\nb\nuse b\n", HOLDS),
    ("a variable defined again, the old value", "CHECK: [[X:a|b]]\nCHECK: [[X:a|b]]\nCHECK: use [[X]]\n", "a\nb\nuse a\n", 3),
    ("a variable in a not", "CHECK: def [[X:[a-z]+]]\nCHECK-NOT: call [[X]]\nCHECK: end\n", "def f\ncall f\nend\n", 2),
    ("a variable in a not, another value", "CHECK: def [[X:[a-z]+]]\nCHECK-NOT: call [[X]]\nCHECK: end\n", "def f\ncall g\nend\n", HOLDS),
    ("a not sees the value of the match behind it", "CHECK: x [[X:a.]]\nCHECK-NOT: [[X]]\nCHECK: [[X:b.]]\n", "x a1\na1\nb2\n", HOLDS),
    ("a variable with a group in it", "CHECK: [[X:(a|b)+]] [[Y:c]] [[X]] [[Y]]\n", "aba c aba c\n", HOLDS),
    ("a variable with brackets in it", "CHECK: [[X:x[[0-9]+[]]]]\nCHECK: use [[X]]\n", "x[0]\nuse x[0]\n", HOLDS),
    ("a variable with an escaped bracket", "CHECK: [[X:x\\[[0-9]+\\]]]\nCHECK: use [[X]]\n", "x[0]\nuse x[0]\n", HOLDS),
    ("a variable with one escaped bracket", "CHECK: [[X:x\\[a+]] [[X]]\n", "x[a x[a\n", HOLDS),
    ("a global variable", "CHECK: [[$X:a.]] [[$X]]\n", "a1 a1\n", HOLDS),
    (
        "variables live on across labels",
        "CHECK-LABEL: def f\nCHECK: [[X:v[0-9]]]\nCHECK-LABEL: def g\nCHECK: [[X]]\n",
        "def f\nv1\ndef g\nv1\n",
        HOLDS,
    ),
    ("runs of blanks are one", "CHECK: a  b\tc\n", "a b   c\n", HOLDS),
    ("a tab in the text", "CHECK: a b\n", "a\tb\n", HOLDS),
    ("a blank is not nothing", "CHECK: a b\n", "ab\n", 1),
    ("nothing is not a blank", "CHECK: ab\n", "a b\n", 1),
    ("a newline is no blank", "CHECK: a b\n", "a\nb\n", 1),
    ("indentation does not matter", "CHECK:    return (buf0,)\n", "        return (buf0,)\n", HOLDS),
    ("blanks at the end of a line of checks", "CHECK: a   \nCHECK-NEXT: b\t\n", "a\nb\n", HOLDS),
    ("blanks within an expression", "CHECK: a{{  +}}b\n", "a    b\n", HOLDS),
    ("carriage returns", "CHECK: a{{$}}\nCHECK-NEXT: {{^}}b{{$}}\n", "a\r\nb\r\n", HOLDS),
    ("literal", "CHECK{LITERAL}: x[[0]] = {{a}}\n", "x[[0]] = {{a}}\n", HOLDS),
    ("literal, no expression", "CHECK{LITERAL}: {{.*}}\n", "abc\n", 1),
    ("literal not", "CHECK: a\nCHECK-NOT{LITERAL}: [[b\n", "a\n[[b\n", 2),
    ("literal next", "CHECK: a\nCHECK-NEXT{LITERAL}: {{b\n", "a\n{{b\n", HOLDS),
    ("literal count", "CHECK-COUNT-2{LITERAL}: [[\n", "[[ [[\n", HOLDS),
    ("literal keeps to equal blanks", "CHECK{LITERAL}: [[  a\n", "[[ a\n", HOLDS),
)


def failing_line(checks: str, text: str) -> int:
    """Return the line of the directive that failed, or ``HOLDS``."""
    outcome = run(parse(checks), text)
    assert outcome.passed == (outcome.line is None)
    return outcome.line or HOLDS


@pytest.mark.parametrize(("checks", "text", "verdict"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS])
def test_verdict_is_that_of_llvm(checks: str, text: str, verdict: int) -> None:
    assert failing_line(checks, text) == verdict


def test_table_has_both_verdicts_for_every_directive() -> None:
    for kind in Kind:
        uses = [(row[3], parse(row[1])) for row in VERDICTS]
        verdicts = {verdict for verdict, checks in uses if any(one.kind is kind for one in checks)}
        assert HOLDS in verdicts, kind
        assert verdicts - {HOLDS}, kind


@pytest.mark.parametrize(("before", "after"), [("\n", "\r\n"), (" ", "  "), (" ", "\t")], ids=["dos line ends", "two blanks", "tabs"])
def test_verdict_does_not_depend_on_line_ends_and_blanks(before: str, after: str) -> None:
    for name, checks, text, verdict in VERDICTS:
        if "\r" not in text:
            assert failing_line(checks, text.replace(before, after)) == verdict, name


# What a person can mistype: the checks, then line, column, message and hint of the error.
MISTYPED: tuple[tuple[str, int, int, str, str], ...] = (
    ("", 1, 1, "no directives: nothing would be checked", "write one of CHECK:"),
    ("  \n\t\n", 1, 1, "no directives: nothing would be checked", "write one of CHECK:"),
    ("CHECK_NOT: a", 1, 1, "not a directive: 'CHECK_NOT: a'", "did you mean 'CHECK-NOT:'?"),
    ("CHECK: a\n  CHECK : b", 2, 3, "not a directive: 'CHECK : b'", "did you mean 'CHECK:'?"),
    ("check-next: a", 1, 1, "not a directive: 'check-next: a'", "did you mean 'CHECK-NEXT:'?"),
    ("Check: a", 1, 1, "not a directive: 'Check: a'", "did you mean 'CHECK:'?"),
    ("CHECK a", 1, 1, "not a directive: 'CHECK a'", "did you mean 'CHECK:'?"),
    ("CHECK-NOT a b", 1, 1, "not a directive: 'CHECK-NOT a b'", "did you mean 'CHECK-NOT:'?"),
    ("CHECKNOT: a", 1, 1, "not a directive: 'CHECKNOT: a'", "did you mean 'CHECK-NOT:'?"),
    ("CHECKS: a", 1, 1, "not a directive: 'CHECKS: a'", "did you mean 'CHECK:'?"),
    ("CHECK-LABLE: a", 1, 1, "not a directive: 'CHECK-LABLE: a'", "did you mean 'CHECK-LABEL:'?"),
    ("CHECK\uff1aa", 1, 1, "not a directive: 'CHECK\uff1aa'", "did you mean 'CHECK:'?"),
    ("- CHECK: a", 1, 1, "not a directive: '- CHECK: a'", "did you mean 'CHECK:'?"),
    ("XCHECK: a", 1, 1, "not a directive: 'XCHECK: a'", "did you mean 'CHECK:'?"),
    ("CHECK{literal}: a", 1, 1, "not a directive: 'CHECK{literal}: a'", "did you mean 'CHECK{LITERAL}:'?"),
    ("CHECK-NEXT-NOT: a", 1, 1, "not a directive: 'CHECK-NEXT-NOT:'", "kinds cannot be combined: write one line for each"),
    ("CHECK-COUNT-2-NOT: a", 1, 1, "not a directive: 'CHECK-COUNT-2-NOT:'", "kinds cannot be combined: write one line for each"),
    ("COM: a", 1, 1, "not a directive: 'COM:'", "write comments in the YAML"),
    ("RUN: a", 1, 1, "not a directive: 'RUN:'", "write comments in the YAML"),
    ("#", 1, 1, "not a directive: '#'", "a line is blank or begins with one of CHECK:"),
    ("CHECK: a\nreturn b", 2, 1, "not a directive: 'return b'", "a line is blank or begins with one of CHECK:"),
    ("CHECK: a\n\n# a word: about it", 3, 1, "not a directive: '# a word: about it'", "a line is blank or begins with one of CHECK:"),
    ("CHECK-COUNT: a", 1, 1, "not a directive: 'CHECK-COUNT: a'", "did you mean 'CHECK-COUNT-<n>:'?"),
    ("CHECK-COUNT-x: a", 1, 1, "not a directive: 'CHECK-COUNT-x: a'", "did you mean 'CHECK-COUNT-<n>:'?"),
    ("CHECK-COUNT-1234567: a", 1, 1, "not a directive: 'CHECK-COUNT-1234567: a'", "did you mean 'CHECK-COUNT-<n>:'?"),
    ("CHECK-COUNT-0: a", 1, 13, "a count of 0 requires nothing", "to forbid a text write CHECK-NOT:"),
    ("CHECK-NOT: a", 1, 1, "only CHECK-NOT: any text without these lines passes", "add a CHECK:"),
    ("\nCHECK-NOT: a\nCHECK-NOT: b", 2, 1, "only CHECK-NOT: any text without these lines passes", "add a CHECK:"),
    ("CHECK: {{.*}}", 1, 8, "every pattern matches the empty text", ""),
    ("CHECK-NOT: b\nCHECK-DAG: {{a?}}\nCHECK-SAME: {{$}}".replace("SAME", "DAG"), 2, 12, "every pattern matches the empty text", ""),
    ("CHECK-NEXT: a", 1, 1, "CHECK-NEXT without a CHECK: before it", "begin with CHECK: or CHECK-LABEL:"),
    ("CHECK-SAME: a", 1, 1, "CHECK-SAME without a CHECK: before it", "begin with CHECK: or CHECK-LABEL:"),
    ("CHECK-EMPTY:\nCHECK: a", 1, 1, "CHECK-EMPTY without a CHECK: before it", "begin with CHECK: or CHECK-LABEL:"),
    ("CHECK-NOT: a\nCHECK-DAG: b\nCHECK-NEXT: c", 3, 1, "CHECK-NEXT without a CHECK: before it", "begin with CHECK:"),
    ("CHECK:", 1, 6, "CHECK without a pattern", "for an empty line write CHECK-EMPTY:"),
    ("CHECK-NOT:  \t", 1, 10, "CHECK-NOT without a pattern", "for an empty line write CHECK-EMPTY:"),
    ("CHECK{LITERAL}:", 1, 15, "CHECK without a pattern", "for an empty line write CHECK-EMPTY:"),
    ("CHECK: a\nCHECK-EMPTY: b", 2, 13, "CHECK-EMPTY takes no pattern", "CHECK-NEXT:"),
    ("CHECK:: a", 1, 7, "two colons", "put a space before it"),
    (
        "CHECK: a CHECK-NOT: b",
        1,
        10,
        "a second directive on one line",
        "put it on a line of its own; to match this text literally, write CHECK{LITERAL}:",
    ),
    ("CHECK:\u00a0a", 1, 7, "invisible character U+00A0", "use a plain space"),
    ("CHECK: a\u200bb", 1, 9, "invisible character U+200B", "use a plain space"),
    ("\ufeffCHECK: a", 1, 1, "invisible character U+FEFF", "use a plain space"),
    ("CHECK: a {{b", 1, 10, "{{ without its }}", "close it; to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK-COUNT-2: {{b}", 1, 16, "{{ without its }}", "close it; to match this text literally, write CHECK-COUNT-2{LITERAL}:"),
    ("CHECK: {foo}}", 1, 12, "}} without its {{", "open it; to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: foo}}", 1, 11, "}} without its {{", "open it; to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: X]]", 1, 9, "]] without its [[", "open it; to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: [[X:a", 1, 8, "[[ without its ]]", "close it; to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: [[X]", 1, 8, "[[ without its ]]", "close it; to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: [[X:a]b]]", 1, 8, "[[ without its ]]", "close it; to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: a[[0]]", 1, 9, "not a variable: '[[0]]'", "to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: [[ X]]", 1, 8, "not a variable: '[[ X]]'", "to match this text literally, write CHECK{LITERAL}:"),
    ("CHECK: [[X]]", 1, 8, "[[X]] is not defined", "define it on an earlier line: [[X:...]]"),
    ("CHECK: [[BUF:a]]\nCHECK: b [[BUFF]]", 2, 10, "[[BUFF]] is not defined", "did you mean 'BUF'?"),
    ("CHECK: [[X]] [[X:a]]", 1, 8, "[[X]] is not defined", "define it on an earlier line"),
    ("CHECK-NOT: [[X:a]]\nCHECK: [[X]]", 2, 8, "[[X]] is not defined", "define it on an earlier line"),
    ("CHECK: [[X:a]] [[X:b]]", 1, 16, "X is defined twice on one line", ""),
    ("CHECK: [[X:a*]]", 1, 12, "X may be empty", "let it match at least one character"),
    ("CHECK: [[X:]]", 1, 12, "empty expression", ""),
    ("CHECK-LABEL: [[X:a]]", 1, 14, "CHECK-LABEL takes no variable", "labels are matched before variables are defined"),
    ("CHECK: [[X:a]]\nCHECK-LABEL: f [[X]]", 2, 14, "CHECK-LABEL takes no variable", "labels are matched before variables are defined"),
    ("CHECK: [[#X:]]", 1, 8, "numeric substitution [[#...]] is not supported", "capture text: [[NAME:[0-9]+]]"),
    ("CHECK: a [[#X + 1]]", 1, 10, "numeric substitution [[#...]] is not supported", "capture text"),
    ("CHECK: [[@LINE]]", 1, 8, "numeric substitution [[#...]] is not supported", "capture text"),
    (
        "CHECK: foo.*bar",
        1,
        11,
        "'.*' is plain text outside {{ }}",
        "put it between {{ and }}; to match this text literally, write CHECK{LITERAL}:",
    ),
    ("CHECK: a\nCHECK-NOT: foo\\(", 2, 15, "'\\(' is plain text outside {{ }}", "put it between {{ and }}"),
    ("CHECK: {{}}", 1, 10, "empty expression", ""),
    ("CHECK: {{a{2}}}", 1, 11, "brace without its end", "{{(a{2})}}"),
    ("CHECK: {{\\d+}}", 1, 10, "\\d means the letter d here", "write [0-9]"),
    ("CHECK: x{{(a|b}}", 1, 11, "parenthesis without its end", ""),
    ("CHECK: [[X:(a]]", 1, 12, "parenthesis without its end", ""),
    ("CHECK: [[X:[a-]+[[:foo:]]]]", 1, 18, "unknown character class", "known: alnum"),
)


@pytest.mark.parametrize(("checks", "line", "column", "message", "hint"), MISTYPED, ids=[repr(row[0]) for row in MISTYPED])
def test_mistyped_checks_are_an_error(checks: str, line: int, column: int, message: str, hint: str) -> None:
    with pytest.raises(ChecksError) as caught:
        parse(checks)
    problem = caught.value
    assert (problem.line, problem.column) == (line, column)
    assert problem.message.startswith(message)
    assert hint in problem.hint
    assert bool(hint) == bool(problem.hint)
    assert str(problem).startswith(f"{line}:{column}: {message}")


def test_single_letter_typo_in_directive_is_an_error() -> None:
    for kind in Kind:
        word = "CHECK-COUNT-2" if kind is Kind.COUNT else kind.value
        for at in range(len(word)):
            for wrong in (word[:at] + word[at + 1 :], word[:at] + "x" + word[at + 1 :], word[:at] + " " + word[at:]):
                if wrong.strip() != word:
                    with pytest.raises(ChecksError, match="not a directive"):
                        parse(f"CHECK: a\n{wrong}: b\n")


def test_directives_say_what_was_read() -> None:
    found = parse("  # CHECK: a\n\nCHECK-NOT:   b {{c|d}}  \nCHECK-COUNT-3{LITERAL}: {{\nCHECK-EMPTY:\n")
    assert [(one.kind, one.pattern, one.line, one.column, one.count) for one in found] == [
        (Kind.CHECK, "a", 1, 12, 1),
        (Kind.NOT, "b {{c|d}}", 3, 14, 1),
        (Kind.COUNT, "{{", 4, 25, 3),
        (Kind.EMPTY, "", 5, 13, 1),
    ]
    assert [str(one) for one in found] == ["CHECK: a", "CHECK-NOT: b {{c|d}}", "CHECK-COUNT-3{LITERAL}: {{", "CHECK-EMPTY:"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].line = 2  # type: ignore[misc]


def test_a_directive_can_be_taken_out() -> None:
    text = "x = conv(y)\nk.run(x, frozen_1)\nreturn (x,)\n"
    checks = parse(SEED)
    assert run(checks, text).passed
    for dropped in checks:
        rest = tuple(one for one in checks if one is not dropped)
        held = run(rest, text).passed
        # Without .run( the SAME looks beside conv; without the SAME the NOT sees the first frozen.
        assert held == (dropped.line not in (2, 3))


@pytest.mark.parametrize("text", ["", "\n", " \t\r\n\n", "\u00a0"])
def test_an_empty_text_has_no_verdict(text: str) -> None:
    for checks in ("CHECK: a\n", "CHECK: a\nCHECK-NOT: b\n", "CHECK: {{ +}}x\nCHECK-EMPTY:\n"):
        with pytest.raises(EmptyText, match="the text is blank"):
            run(parse(checks), text)


def test_slow_pattern_is_no_verdict() -> None:
    checks = parse("CHECK: {{(a+)+b}}\n")
    start = time.monotonic()
    with pytest.raises(PatternTooSlow, match=r"0\.2 s"):
        run(checks, "a" * 40, seconds=0.2)
    assert time.monotonic() - start < 60


def test_slow_search_for_a_hint_keeps_the_verdict() -> None:
    text = "a" * 40 + "\nx\nb\n"
    start = time.monotonic()
    outcome = run(parse("CHECK: x\nCHECK: {{(a+)+c}}\n"), text)
    assert (outcome.passed, outcome.line, outcome.reason, outcome.possible) == (False, 2, "no match", "")
    assert time.monotonic() - start < 60


def test_time_limit_in_other_thread_is_an_error() -> None:
    caught: list[BaseException] = []

    def judge() -> None:
        try:
            run(parse("CHECK: a\n"), "a")
        except RuntimeError as problem:
            caught.append(problem)

    thread = threading.Thread(target=judge)
    thread.start()
    thread.join(timeout=60)
    assert [str(problem) for problem in caught] == ["a time limit can be set only in the main thread"]


# Explanations: the checks, the text, then what the outcome says.


def test_no_match_shows_where_the_search_began() -> None:
    outcome = run(parse("CHECK: .run(\nCHECK: return\n"), "import k\n\ndef call():\n    k.run(x)\n    retrun x\n# end\n")
    assert (outcome.passed, outcome.line, outcome.directive, outcome.reason) == (False, 2, "CHECK: return", "no match")
    assert outcome.excerpt.split("\n") == [
        "     2 |",
        "     3 | def call():",
        ">    4 |     k.run(x)",
        "       |           ^ searched from here",
        "     5 |     retrun x",
        "     6 | # end",
    ]
    assert outcome.possible == "line 5: retrun x"


def test_forbidden_match_is_underlined_in_the_text_as_it_was() -> None:
    outcome = run(parse("CHECK: a\nCHECK-NOT: b c{{d+}}\n"), "\ta\n  x\tb \t cdd e\n")
    assert (outcome.line, outcome.reason, outcome.possible) == (2, "matched a forbidden line", "")
    assert outcome.excerpt.split("\n") == ["     1 |     a", ">    2 |   x b    cdd e", "       |     ^^^^^^^^ matched here"]


@pytest.mark.parametrize(
    ("checks", "text", "reason"),
    [
        ("CHECK: a\nCHECK-NEXT: b\n", "a b\n", "matched on the same line as the previous match"),
        ("CHECK: a\nCHECK-NEXT: b\n", "a\n\nb\n", "matched, but not on the line after the previous match"),
        ("CHECK: a\nCHECK-SAME: b\n", "a\nb\n", "matched, but not on the same line as the previous match"),
        ("CHECK: a\nCHECK-EMPTY:\n", "a\nb\n\nc\n", "matched, but not on the line after the previous match"),
        ("CHECK: x\nCHECK-COUNT-3: a\n", "x a a\n", "matched 2 of 3 times"),
        ("CHECK: x\nCHECK-COUNT-3: a\n", "x\n", "no match"),
        ("CHECK: x\nCHECK-DAG: a\n", "x\n", "no match"),
        ("CHECK: x\nCHECK-LABEL: a\n", "x\n", "no match"),
    ],
)
def test_reason(checks: str, text: str, reason: str) -> None:
    outcome = run(parse(checks), text)
    assert (outcome.passed, outcome.line, outcome.reason) == (False, 2, reason)
    assert outcome.excerpt.count("\n       | ") == 1


@pytest.mark.parametrize(
    ("checks", "text", "possible"),
    [
        ("CHECK: b\nCHECK: a\n", "a\nb\n", "line 1: a (before the lines searched)"),
        ("CHECK-LABEL: f\nCHECK: x\nCHECK-LABEL: g\n", "f\ng\n  x\n", "line 3: x (after the lines searched)"),
        ("CHECK: tl.load(in_ptr0 + x0)\n", "def k():\n    tmp = tl.load(in_ptr0 + (x0))\n", "line 2: tmp = tl.load(in_ptr0 + (x0))"),
        ("CHECK: [[B:buf[0-9]+]] =\nCHECK: del [[B]] # done\n", "buf1 = 0\nx\ndel buf1  # dome\n", "line 3: del buf1  # dome"),
        ("CHECK: entirely different\n", "a\nb\n", ""),
        ("CHECK: {{[0-9]+}}\n", "a\nb\n", ""),
        ("CHECK: a\nCHECK: b\n", "a", ""),
    ],
)
def test_possible_match(checks: str, text: str, possible: str) -> None:
    assert run(parse(checks), text).possible == possible


def test_excerpt_of_a_long_line_shows_the_place() -> None:
    outcome = run(parse("CHECK: start\nCHECK-NOT: needle\n"), "start" + "." * 5000 + "needle" + "." * 5000)
    line, marks = outcome.excerpt.split("\n")
    assert len(line) < 160
    assert line[marks.index("^") : marks.rindex("^") + 1] == "needle"


def test_excerpt_behind_the_last_newline() -> None:
    outcome = run(parse("CHECK: a{{[[:space:]]}}\nCHECK: b\n"), "a\n")
    assert outcome.excerpt == "     1 | a\n>    2 |\n       | ^ searched from here"


def test_passed_outcome_has_no_details() -> None:
    outcome = run(parse("CHECK: a\n"), "a")
    assert dataclasses.astuple(outcome) == (True, None, "", "", "", "")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for _, checks, text, _ in VERDICTS:
        run(parse(checks), text)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_written_and_the_environment_does_not_matter(tmp_path: Path) -> None:
    code = "from runner.model.matching.filecheck import parse, run\n"
    code += "assert run(parse('CHECK-DAG: a\\nCHECK-DAG: b\\nCHECK-NOT: c\\n'), 'b a').passed\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path), "FILECHECK_OPTS": "-v"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True, timeout=240)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == (b"", b"", [])


def test_the_captured_value_is_text_even_when_it_looks_like_a_pattern() -> None:
    checks = parse("CHECK: name [[X:[^ ]+]]\nCHECK-NOT: <[[X]]>\nCHECK: end\n")
    assert run(checks, "name {{.*}}\n<abc>\nend\n").passed
    assert not run(checks, "name {{.*}}\n<{{.*}}>\nend\n").passed


def fastest(judge: Callable[[], bool]) -> float:
    """Return the least CPU time of five, in seconds."""
    times = []
    for _ in range(5):
        start = time.process_time()
        assert judge()
        times.append(time.process_time() - start)
    return min(times)


def test_time_of_a_large_text() -> None:
    line = "        tmp{} = tl.load(in_ptr{} + (x0 + 64*x1), xmask, eviction_policy='evict_last').to(tl.float32)\n"
    body = "".join(line.format(at, at) for at in range(2000))
    text = body + "    triton_poi_fused_0.run(arg0, _frozen_param0)\n    return (buf0,)\n"
    checks = parse(
        "CHECK: tmp0 =\nCHECK-SAME: tl.load\nCHECK-NEXT: tmp1 = [[LOAD:tl[.]load]]\nCHECK-COUNT-20: [[LOAD]](in_ptr{{[0-9]+}}\n"
        "CHECK-DAG: tmp9{{[0-9]|x}}\nCHECK-DAG: tmp5{{[0-9]}} =\nCHECK-NOT: extern_kernels.{{(mm|addmm)}}(\nCHECK: .run(\n"
        "CHECK-SAME: _frozen_param\nCHECK-NOT: _frozen_param\nCHECK-NEXT: return\n"
    )
    assert len(text) > 200_000
    assert fastest(lambda: run(checks, text).passed) < 0.05
    assert fastest(lambda: not run(checks, text.replace("return", "retrun")).passed) < 0.05


# -- texts that the checks must refuse: for each directive one, or the reason why there is none --------------------

CODE = """def f(x):
    y = convolution_relu(x, _frozen_param0, _frozen_param1)
    y = foo(y)

    y = foo(y)
    return y
"""


def refusals(checks: str, text: str = CODE) -> list[str]:
    """Return what the checks say of each changed text: nothing where they still hold, else the directive that fails."""
    parsed = parse(checks)
    assert run(parsed, text).passed
    found = []
    for change in changes(parsed, text):
        assert change.directive in parsed
        found.append(change.why_not if change.text is None else run(parsed, change.text).directive)
    return found


@pytest.mark.parametrize(
    "directive",
    [
        "CHECK: convolution",
        "CHECK: convolution{{[a-z_]*}}({{[a-z]+}}, _frozen_param{{.*}}_frozen_param",
        "CHECK-LABEL: def f",
        "CHECK-DAG: foo",
        "CHECK-COUNT-2: foo",
        "CHECK: foo",
        "CHECK: return [[NAME:[a-z]+]]",
        "CHECK{LITERAL}: (x",
    ],
)
def test_what_a_directive_matched_is_removed(directive: str) -> None:
    assert refusals(directive) == [directive]


def test_one_of_several_matches_is_not_enough() -> None:
    """A check asks for one match: with another in its stead it holds, and rightly."""
    (change,) = changes(parse("CHECK: foo"), CODE)
    assert change.kind is Change.REMOVED
    assert "foo" not in (change.text or "foo")


def test_a_directive_that_matches_the_empty_text_survives() -> None:
    assert refusals("CHECK: foo\nCHECK-SAME: {{.*}}") == ["CHECK: foo", ""]


@pytest.mark.parametrize(
    "forbidden",
    [
        "CHECK-NOT: sqrt",
        "CHECK-NOT: tanh(",
        "CHECK-NOT: {{mm|linear}}{{[a-z_.]*}}({{.*}}_frozen",
        "CHECK-NOT: {{^}}import",
        "CHECK-NOT: {{([[:digit:]]{3})}} times",
        "CHECK-NOT: {{[^a-z]x[^[:space:]]+}}!",
        "CHECK-NOT: {{(ab)+c?}}d{{$}}",
    ],
)
@pytest.mark.parametrize("around", ["{}\nCHECK: convolution", "CHECK: convolution\n{}\nCHECK: return", "CHECK: return\n{}"])
def test_a_forbidden_line_is_put_in(forbidden: str, around: str) -> None:
    assert forbidden in refusals(around.format(forbidden))


def test_a_forbidden_text_is_put_where_the_next_line_stays_the_next() -> None:
    checks = "CHECK: convolution{{.*}}_frozen_param\nCHECK-NOT: bar\nCHECK-NEXT: foo"
    assert refusals(checks)[1] == "CHECK-NOT: bar"


def test_what_the_next_line_would_take_first_survives() -> None:
    """Before the first ``foo`` there is no ``foo``, whatever the text: such a CHECK-NOT says nothing."""
    assert refusals("CHECK: convolution\nCHECK-NOT: foo\nCHECK: foo") == ["CHECK: convolution", "", "CHECK: foo"]
