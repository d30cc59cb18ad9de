"""A local web server of one page."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def server(html: str, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of one HTML page at `/` on 127.0.0.1, not yet started.

    Args:
      html: the page.
      port: the port; 0 for any free port.
    """
    content = html.encode("utf-8")

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.split("?")[0] != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format, *args):
            """Keep requests out of the terminal, which shows the address of the page."""

    return ThreadingHTTPServer(("127.0.0.1", port), Page)
