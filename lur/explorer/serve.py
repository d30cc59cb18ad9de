"""One page, served to this machine alone."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def server(text: str, port: int = 0) -> ThreadingHTTPServer:
    """A server of one HTML page at `/`, on 127.0.0.1; port 0 takes a free one. Not started yet."""
    content = text.encode("utf-8")

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
            """Silent: the address is all there is to say."""

    return ThreadingHTTPServer(("127.0.0.1", port), Page)
