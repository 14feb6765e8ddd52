"""What happened in a run, for people: one self-contained HTML file, Markdown, or JSON (DESIGN section 8, Report)."""
