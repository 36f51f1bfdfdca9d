"""Tests that documentation pages name existing files and show the examples unchanged."""

import re
from pathlib import Path

import pytest

from fairlead.gateway.gateway_file import read_gateway_file

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), ROOT / "bench" / "README.md"])
FOLDERS = "bench|docs|evidence|examples|scripts|src|tests"
# Files that are created by commands and not part of the repository.
GENERATED = ("bench/.env", "docs/site")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_on_a_documentation_page_exist(page: Path) -> None:
    generated = r"<!-- generated: .*?<!-- end -->|\b[a-z]+://\S+"
    text = re.sub(generated, "", page.read_text(), flags=re.DOTALL)
    named = set(re.findall(rf"(?<![\w/.~-])(?:{FOLDERS})/[\w./*+-]*[\w/*]", text))
    missing = [
        name for name in sorted(named) if not name.startswith(GENERATED) and not exists(name)
    ]
    assert missing == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_documentation_links_refer_to_existing_files_and_headings(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("README.md", "ten_line_server.py"),
        ("README.md", "ten_line_client.py"),
        ("README.md", "gateway.toml"),
        ("docs/protecting.md", "protected_server.py"),
        ("docs/tutorial.md", "tutorial/notes.py"),
        ("docs/tutorial.md", "tutorial/client.py"),
        ("docs/tutorial.md", "tutorial/gateway.toml"),
        ("docs/agents.md", "langchain_agent.py"),
        ("docs/agents.md", "openai_agent.py"),
        ("docs/agents.md", "pydantic_ai_agent.py"),
    ],
)
def test_an_example_on_a_documentation_page_equals_its_file(page: str, name: str) -> None:
    code = (ROOT / "examples" / name).read_text()
    shown = re.findall(r"```(?:python|toml)[^\n]*\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert code in shown


def test_the_gateway_example_file_can_be_read() -> None:
    file = read_gateway_file(ROOT / "examples" / "gateway.toml")
    assert list(file.servers) == ["numbers", "jobs"]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_user_documentation_links_to_the_vocabulary_page(page: Path) -> None:
    if page.name in ("vocabulary.md", "design.md", "requirements.md", "evidence.md"):
        return  # pages for developers of Fairlead
    assert "(vocabulary.md" in page.read_text()


def exists(name: str) -> bool:
    return any(ROOT.glob(name)) if "*" in name else (ROOT / name).exists()


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs build them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
