"""What lies beside a bundle: the steps to deploy it, and the least permissions that it needs."""

import json
from collections.abc import Sequence
from string import Template
from typing import Any
from urllib.parse import urlsplit

from hyperslab.errors import InvalidInputError

__all__ = ["deployment_files"]

_SCHEMES = {"aws": "s3", "gcp": "gs", "azure": "az"}
_PLACEHOLDER = {"aws": "s3://BUCKET/PREFIX", "gcp": "gs://BUCKET/PREFIX", "azure": "az://CONTAINER/PREFIX"}
_LOG = "arn:aws:logs:*:*:log-group:/aws/lambda/hyperslab:*"

_AWS = Template("""# Deploying the function on AWS Lambda

Put it into the region of the bucket. Edit `environment.json` first: the roots that it may read, and a key made by
`hyperslab function new-key NAME` (callers use the same text). Whoever may see the function's settings sees the key.

    aws iam create-role --role-name hyperslab-function --assume-role-policy-document file://trust.json
    aws iam put-role-policy --role-name hyperslab-function --policy-name read --policy-document file://policy.json
    aws lambda create-function --function-name hyperslab --runtime python$version --handler main.lambda_handler \\
        --architectures $architecture --memory-size 1769 --timeout 60 --environment file://environment.json \\
        --role arn:aws:iam::ACCOUNT:role/hyperslab-function --zip-file fileb://function.zip

It answers as many calls at once as there are; bound that, and so the bill:

    aws lambda put-function-concurrency --function-name hyperslab --reserved-concurrent-executions 100

Give it a URL. `NONE` means that AWS lets everybody in, and the function's own keys decide:

    aws lambda create-function-url-config --function-name hyperslab --auth-type NONE
    aws lambda add-permission --function-name hyperslab --statement-id url --principal '*' \\
        --action lambda:InvokeFunctionUrl --function-url-auth-type NONE
    aws lambda add-permission --function-name hyperslab --statement-id invoke --principal '*' \\
        --action lambda:InvokeFunction --invoked-via-function-url

Or let AWS decide who calls: `--auth-type AWS_IAM`, no key but `HYPERSLAB_FUNCTION_AUTH` set to `provider` in
`environment.json`, both permissions to those who call instead of '*', and `auth="aws"` in their `Function`.

`policy.json` lets it read objects below the roots, and write its log. It may not list them, and then S3 answers the
same for an object that is not there as for one that is forbidden: reads that meet chunks which were never written fall
back to reading directly. For arrays with many of them, use `policy-sparse.json` instead: it adds listing.

A new version, and all gone again:

    aws lambda update-function-code --function-name hyperslab --zip-file fileb://function.zip
    aws lambda delete-function --function-name hyperslab
""")

_GCP = Template("""# Deploying the function on Google Cloud

Put it into the region of the bucket. Edit `environment.json` first (Google takes JSON where it says YAML): the roots
that it may read, and a key made by `hyperslab function new-key NAME` (callers use the same text).

    gcloud iam service-accounts create hyperslab-function
$bindings
    gcloud functions deploy hyperslab --gen2 --runtime=$runtime --region=REGION --source=function \\
        --entry-point=handle --trigger-http --memory=2Gi --cpu=1 --concurrency=8 --max-instances=50 --timeout=60s \\
        --service-account=hyperslab-function@PROJECT.iam.gserviceaccount.com \\
        --env-vars-file=environment.json --allow-unauthenticated

`--allow-unauthenticated` means that Google lets everybody in, and the function's own keys decide. Without it Google
decides: set `HYPERSLAB_FUNCTION_AUTH` to `provider`, and give callers the role `roles/run.invoker`. Their `Function`
has `headers={"authorization": "Bearer …"}`, a token from `gcloud auth print-identity-token`, which lasts an hour.

The role lets it read objects below the roots only. It may not list them, and then Google answers the same for an object
that is not there as for one that is forbidden: reads that meet chunks which were never written fall back to reading
directly. For arrays with many of them, leave the condition out (`--condition=None`): the role then holds for the whole
bucket, listing included.

All gone again: `gcloud functions delete hyperslab --gen2`.
""")

_AZURE = Template("""# Deploying the function on Azure Functions

Put it into the region of the storage account. Edit `environment.json` first: the roots that it may read, the account
that they lie in, and a key made by `hyperslab function new-key NAME` (callers use the same text).

    az functionapp create --name APP --resource-group GROUP --storage-account APPSTORAGE \\
        --flexconsumption-location REGION --runtime python --runtime-version $version --instance-memory 2048 \\
        --assign-identity '[system]'
$bindings
    az functionapp config appsettings set --name APP --resource-group GROUP --settings @environment.json
    (cd function && func azure functionapp publish APP)

Calls go to `https://APP.azurewebsites.net/api/call`. Azure wants its own code for them, which `az functionapp keys
list` shows: callers give it as `headers={"x-functions-key": code}` beside the key.

The role lets it read and list blobs of the container, and nothing else.

These steps take the Flex Consumption plan, on which Azure bills otherwise than on the Consumption plan that the bundled
price book knows (`hyperslab prices --provider azure`). For dollars that hold, put the figures of your plan into a price
book of your own.

All gone again: `az functionapp delete --name APP`.
""")


def deployment_files(target: str, roots: Sequence[str], version: str, architecture: str) -> dict[str, str]:
    """Return the files that go beside a bundle, by their names: the steps, the settings, the permissions.

    >>> sorted(deployment_files("aws", ["s3://bucket/run"], "3.12", "x86_64"))
    ['DEPLOY.md', 'environment.json', 'policy-sparse.json', 'policy.json', 'trust.json']
    """
    texts = list(roots) or [_PLACEHOLDER[target]]
    places = [_place(text, _SCHEMES[target]) for text in texts]
    if target == "aws":
        return _aws(texts, places, version, architecture)
    if target == "gcp":
        bindings = "\n".join([_google_binding(*place) for place in places])
        steps = _GCP.substitute(runtime=f"python{version.replace('.', '')}", bindings=bindings)
        return {"DEPLOY.md": steps, "environment.json": _json(_variables(texts))}
    bindings = "\n".join([_azure_binding(bucket) for bucket, _ in places])
    settings = _variables(texts) | {"HYPERSLAB_FUNCTION_STORAGE_OPTIONS": '{"account": "ACCOUNT"}'}
    return {"DEPLOY.md": _AZURE.substitute(version=version, bindings=bindings), "environment.json": _json(settings)}


def _place(root: str, scheme: str) -> tuple[str, str]:
    """Return the bucket and the prefix of a root."""
    parts = urlsplit(root)
    if parts.scheme != scheme or not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        inside = "container" if scheme == "az" else "bucket"
        raise InvalidInputError(f"a root is written '{scheme}://{inside}/prefix' for this target, got {root!r}")
    return parts.netloc, parts.path.strip("/")


def _variables(roots: list[str]) -> dict[str, str]:
    return {"HYPERSLAB_FUNCTION_ROOTS": ",".join(roots), "HYPERSLAB_FUNCTION_KEYS": "NAME:SECRET"}


def _aws(roots: list[str], places: list[tuple[str, str]], version: str, architecture: str) -> dict[str, str]:
    reading = [_allow("s3:GetObject", [f"arn:aws:s3:::{bucket}/{_below(prefix)}" for bucket, prefix in places])]
    listing = [_allow("s3:ListBucket", sorted({f"arn:aws:s3:::{bucket}" for bucket, _ in places}))]
    logs = [_allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], _LOG)]
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    steps = _AWS.substitute(version=version, architecture=architecture)
    return {
        "DEPLOY.md": steps,
        "environment.json": _json({"Variables": _variables(roots)}),
        "policy.json": _policy(reading + logs),
        "policy-sparse.json": _policy(reading + listing + logs),
        "trust.json": _policy([trust]),
    }


def _below(prefix: str) -> str:
    return f"{prefix}/*" if prefix else "*"


def _allow(action: str | list[str], resource: str | list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource}


def _policy(statements: list[dict[str, Any]]) -> str:
    return _json({"Version": "2012-10-17", "Statement": statements})


def _google_binding(bucket: str, prefix: str) -> str:
    name = f"projects/_/buckets/{bucket}/objects/{prefix}/" if prefix else f"projects/_/buckets/{bucket}/objects/"
    return (
        f"    gcloud storage buckets add-iam-policy-binding gs://{bucket} --role=roles/storage.objectViewer \\\n"
        "        --member=serviceAccount:hyperslab-function@PROJECT.iam.gserviceaccount.com \\\n"
        f"""        --condition='title=prefix,expression=resource.name.startsWith("{name}")'"""
    )


def _azure_binding(container: str) -> str:
    return (
        '    az role assignment create --role "Storage Blob Data Reader" \\\n'
        "        --assignee $(az functionapp identity show --name APP --resource-group GROUP \\\n"
        "            --query principalId --output tsv) \\\n"
        "        --scope $(az storage account show --name ACCOUNT --query id --output tsv)\\\n"
        f"/blobServices/default/containers/{container}"
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
