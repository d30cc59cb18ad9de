"""`lur explore`: an interactive page of the theory."""

from pathlib import Path


def explore(export: Path | None = None, port: int = 0, browser: bool = True, quiet: bool = False) -> int:
    """Explore how gamma, K, Theta and heterogeneity change the curves, interactively: lur explore

    The page is served to this machine only, until interrupted, and loads nothing from elsewhere.

    Args:
        export: Write the page to this self-contained file instead of serving it.
        port: Port of the local server; 0 takes a free one.
        browser: Open the page in the browser; with --no-browser its address is only printed.
        quiet: Print nothing.
    """
    from lur.explorer import page

    say = (lambda line: None) if quiet else (lambda line: print(line, flush=True))
    if export is not None:
        from lur.runs.files import write_file

        if export.is_dir() or not export.absolute().parent.is_dir():
            raise ValueError(f"--export must name a file in an existing folder, got {export}")
        write_file(export, page())
        say(str(export))
        return 0
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be in [0, 65535], got {port}")
    import webbrowser

    from lur.explorer.serve import server

    with server(page(), port) as serving:
        address = f"http://127.0.0.1:{serving.server_address[1]}/"
        say(f"{address}  (press Ctrl-C to stop)")
        if browser:
            webbrowser.open(address)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
    return 0
