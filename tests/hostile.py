"""Text that a spec, a worker or torch could choose to break a report, a log or a page."""

HOSTILE = (
    "::set-output name=stolen::1",
    "first\n::error file=a.yaml,line=1::second\n  ::stop-commands::x",
    "%0A::error::injected%0D%3A%2C%25",
    "a\r\n::add-mask::b\rc",
    "##[error]injected ##vso[task.setvariable variable=x]y ##teamcity[testFailed]",
    "<script>alert(1)</script>",
    '</pre></details><img src=x onerror="alert(1)">',
    "</code>| a | b |\n|---|---|\n| c | d |",
    "`code` **bold** [link](javascript:alert(1)) ![img](https://example.org/x.png) "
    "https://example.org @someone #1",
    "\n\n# a heading\n\n- a list\n\n    a block\n\n```\nfence\n",
    "&lt;b&gt; &#60;b&#62; &amp;",
    "\x1b[31mred\x1b[0m \x1b]8;;https://example.org\x07link\x1b]8;;\x07",
    "nul \x00 bell \x07 c1 \x9b next \x85 lone \ud800 non \ufffe bidi \u202e line \u2028",
    "]]> <![CDATA[ <?xml version='1.0'?> <!DOCTYPE a>",
    "[[ATTACHMENT|/etc/passwd]]",
    "section_start:1:a\r travis_fold:start:a\n--- a\n+++ b\n^^^ c",
    "\\x41 \\u0041 \\ \" ' , : = ; |",
    "long " * 5_000,
)
