"""One POST: bounded, honest about what went wrong, silent about secrets."""

import contextlib
import socket
import threading

from rltriage.exporters.delivery.http import Credentials, Poster
from rltriage.rules.errors import DeliveryError


def test_json_headers_and_credentials_arrive(journal):
    """Secrets are read at the moment of use, so that a rotated one works at once."""
    secrets = iter(["old", "new"])
    poster = Poster(lambda: journal.url, Credentials({"X-Key": lambda: next(secrets)}, "ann", lambda: "pw"))
    assert poster.post({"a": 1}, {"Idempotency-Key": "k"}).ok and poster.post([2]).ok
    assert journal.entries == [{"a": 1}, [2]]
    assert [seen["X-Key"] for seen in journal.seen] == ["old", "new"]
    assert journal.seen[0]["authorization"] == "Basic YW5uOnB3" and journal.seen[0]["Idempotency-Key"] == "k"


def test_nobody_listens():
    """A refused connection is an answer, not an exception, and names the host alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/services/secret-token"
        answer = Poster(lambda: url).post({})
    assert answer.status == 0 and "refused" in answer.detail and "secret" not in answer.detail


def test_a_hanging_server_costs_its_time_limit(journal):
    """Nothing waits for an answer without end."""
    journal.hang = threading.Event()
    answer = journal.poster(read=0.1).post({})
    assert answer.status == 0 and "in time" in answer.detail


def test_an_answer_without_an_end_is_cut(journal):
    """A receiver that streams for ever does not hold the flush or fill memory."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000)
                with contextlib.suppress(ConnectionError):
                    client.recv(1)  # until we hang up

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        answer = Poster(lambda: f"http://127.0.0.1:{server.getsockname()[1]}").post({})
        thread.join(5)
        assert not thread.is_alive()
    assert answer.ok and len(answer.detail) <= 500


def test_redirects_are_not_followed(journal):
    """A POST that is redirected would become a GET or leak its body elsewhere."""
    journal.status, journal.headers = 302, {"Location": journal.url}
    assert journal.poster().post({}).status == 302 and len(journal.attempts) == 1


def test_retry_after_is_read(journal):
    """In seconds; anything else counts as not said."""
    journal.status, journal.headers = 429, {"Retry-After": "7"}
    assert journal.poster().post({}).retry_after == 7.0
    journal.headers = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert journal.poster().post({}).retry_after == 0.0


def test_a_secret_that_is_missing_is_named(journal):
    """The message says which variable, and nothing is sent."""

    def missing() -> str:
        raise DeliveryError("the environment variable TOKEN is not set")

    answer = Poster(lambda: journal.url, Credentials({"Authorization": missing})).post({})
    assert answer.status == 0 and "TOKEN" in answer.detail and not journal.attempts


def test_what_went_wrong_never_quotes_the_url():
    """Chat URLs are secrets."""
    for url in ("http://host\x00/secret", "nonsense secret", "http://[secret", "https://user:secret@127.0.0.1:1/"):
        answer = Poster(lambda url=url: url).post({})
        assert answer.status == 0 and "secret" not in answer.detail


def test_secrets_are_not_in_the_repr():
    """Neither a debugger nor a log line shows them."""
    assert "pw" not in repr(Credentials({"X": lambda: "pw"}, "ann", lambda: "pw"))
