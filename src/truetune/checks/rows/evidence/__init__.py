"""What several rules on rows look at: tool calls and the tools that a row defines. No rule stands here."""
