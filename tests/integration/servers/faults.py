"""What a proxy saw of a request, and the harm it is to do to requests of some kind."""

from dataclasses import dataclass

REASONS = {403: "Forbidden", 404: "Not Found", 500: "Internal Server Error", 503: "Slow Down"}


@dataclass
class Request:
    """A request; its last three fields are filled while it is answered."""

    method: str
    target: str  # path and query, without percent signs
    range: str | None  # the header, such as `bytes=0-99`
    status: int = 0  # 0 as long as no head of an answer was sent on
    received_bytes: int = 0  # of the request's body, on the wire
    sent_bytes: int = 0  # of the answer's body


@dataclass
class Fault:
    """What happens to the next `left` requests of a method whose target contains a text.

    With `status` they get an S3 error; with `after_bytes` their answers' bodies are cut.
    """

    left: int
    method: str | None
    target: str
    status: int = 0
    code: str = ""
    after_bytes: int = 0

    def strikes(self, request: Request) -> bool:
        """Return whether the request is one of those; such a one is counted off."""
        right_kind = self.method in (None, request.method) and self.target in request.target
        if self.left == 0 or not right_kind:
            return False
        self.left -= 1
        return True

    def answer(self) -> bytes:
        """Return the whole HTTP answer, in the XML of S3."""
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{self.code}</Code><Message>As the test asked for.</Message>"
            "<RequestId>fault</RequestId></Error>"
        ).encode()
        head = (
            f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Error')}\r\n"
            f"Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        return head + body
