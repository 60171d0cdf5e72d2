"""A native vLLM server: its version, its models and its metrics page."""

from __future__ import annotations

from obs.doctor.facts import Page, Vllm
from obs.doctor.triton import page
from obs.doctor.web import LookedAtNothing, Site, get


def look(site: Site) -> tuple[Vllm, Page | None, list[str]]:
    """The server, its page, and what could not be read. Raises LookedAtNothing when no vLLM answers."""
    fetcher = site.fetcher()
    url = site.url.rstrip("/").removesuffix("/metrics").removesuffix("/v1")
    lacking: list[str] = []
    told = get(fetcher, url, "/version")
    document = told.json()
    version = str(document.get("version", "")) if isinstance(document, dict) and told.status == 200 else ""
    models: list[object] | None = None
    try:
        listed = get(fetcher, url, "/v1/models")
        document = listed.json()
        if isinstance(document, dict) and listed.status == 200 and isinstance(document.get("data"), list):
            models = document["data"]
    except LookedAtNothing as error:
        lacking.append(str(error))
    found: Page | None = None
    try:
        found = page(Site(f"{url}/metrics", site.timeout, site.authorization, site.ca_file))
    except LookedAtNothing as error:
        lacking.append(str(error))
    if models is None and (found is None or not any(name.startswith("vllm:") for name in found.names)):
        raise LookedAtNothing(f"{told.url}: no vLLM answers here, but {told.what}; give the API server's address (port 8000)")
    if not version:
        lacking.append(f"{told.url}: HTTP {told.status}: the version is not known")
    names = tuple(str(one["id"]) for one in models or () if isinstance(one, dict) and "id" in one)
    return Vllm(url, version, names), found, lacking
