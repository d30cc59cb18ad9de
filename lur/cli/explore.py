"""`lur explore`: the page in which the theory can be played with."""

from pathlib import Path


def explore(export: Path | None = None, port: int = 0, browser: bool = True, quiet: bool = False) -> int:
    """Play with gamma, K, Theta and heterogeneity in a page whose curves move at once: lur explore

    The page is served to this machine only, until interrupted; nothing in it comes from elsewhere.

    Args:
        export: Write the page to this file, which needs no other, and stop.
        port: Of the local server; 0 takes a free one.
        browser: Open the page in the browser; with --no-browser its address is only printed.
        quiet: Print nothing.
    """
    from lur.explorer import page

    say = (lambda line: None) if quiet else (lambda line: print(line, flush=True))
    if export is not None:
        from lur.runs.files import write_file

        if export.is_dir() or not export.absolute().parent.is_dir():
            raise ValueError(f"--export must name a file in a folder that is there, got {export}")
        write_file(export, page())
        say(str(export))
        return 0
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be in [0, 65535], got {port}")
    import webbrowser

    from lur.explorer.serve import server

    with server(page(), port) as serving:
        address = f"http://127.0.0.1:{serving.server_address[1]}/"
        say(f"{address}  (Ctrl-C stops)")
        if browser:
            webbrowser.open(address)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
    return 0
