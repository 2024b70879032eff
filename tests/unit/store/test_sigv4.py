import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.errors import AccessError, InvalidInputError
from hyperslab.store.sigv4 import AwsLogin, function_region, read_login, sign_aws

LOGIN = AwsLogin("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None, "us-east-1")
NOW = 1440938160.0


def test_the_post_of_the_manual() -> None:
    """AWS's own test suite: post-vanilla."""
    headers = sign_aws(LOGIN, "https://example.amazonaws.com/", {}, b"", now=NOW, service="service")
    assert headers["x-amz-date"] == "20150830T123600Z"
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
    )


@settings(max_examples=50, deadline=None)
@given(
    path=st.text(alphabet="ab/-_.~%20é ", max_size=12),
    body=st.binary(max_size=50),
    token=st.none() | st.text(alphabet="abc+/=", min_size=1, max_size=20),
    value=st.text(alphabet="ab  ,;=", max_size=12),
)
def test_botocore_signs_the_same(path: str, body: bytes, token: str | None, value: str) -> None:
    auth = pytest.importorskip("botocore.auth")
    from urllib.parse import quote

    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = "https://abc.lambda-url.eu-west-1.on.aws/" + quote(path).lstrip("/")
    login = AwsLogin("me", "secret", token, "eu-west-1")
    headers = {"content-type": "application/json", "x-own": value.strip()}
    ours = sign_aws(login, url, headers, body, now=NOW)

    request = AWSRequest("POST", url, headers=headers, data=body)
    request.context["timestamp"] = ours["x-amz-date"]
    signer = auth.SigV4Auth(Credentials("me", "secret", token), "lambda", "eu-west-1")
    if token:
        request.headers["X-Amz-Security-Token"] = token
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert ours["authorization"].endswith("Signature=" + signer.signature(text, request))
    assert ours.get("x-amz-security-token") == token


def test_the_region_is_that_of_the_url() -> None:
    assert function_region("https://abc.lambda-url.ap-south-2.on.aws/x") == "ap-south-2"
    assert function_region("https://lambda-url.ap-south-2.on.aws.example.com/") is None


def test_credentials_come_from_the_environment(no_aws: object) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "hidden too"}
    login = read_login("https://abc.lambda-url.eu-west-1.on.aws/", {**keys, "AWS_REGION": "us-east-1"})
    assert login == AwsLogin("me", "hidden", "hidden too", "eu-west-1")
    assert "hidden" not in repr(login)
    with pytest.raises(InvalidInputError, match="AWS_REGION"):
        read_login("https://host/", {**keys, "HOME": "/nowhere"})
    for environment in ({"HOME": "/nowhere"}, {"HOME": "/nowhere", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x"}):
        with pytest.raises(AccessError, match="no credentials to sign"):
            read_login("https://host/", environment)
