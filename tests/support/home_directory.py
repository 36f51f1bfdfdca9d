"""A home directory with configuration files of all host programs, in their native formats."""

import json
from pathlib import Path
from typing import Any

from fairlead.config.paths import HostPaths

HOME = "home/ada"
PROJECT = "home/ada/lab/engine"

STDIO = {"command": "npx", "args": ["-y", "thing-mcp"], "env": {"TOKEN": "t0p"}}
REMOTE = {"url": "https://mcp.example.com/mcp", "headers": {"X-Key": "k3y"}}

USER_FILES: dict[str, str] = {
    ".config/fairlead/mcp.json": json.dumps(
        {
            "$schema": "https://example.com/mcp.schema.json",
            "mcpServers": {
                "own": {"command": "own-mcp", "env": {"KEY": "${OWN_KEY:-none}"}, "lazy": True},
                "own-off": {"command": "off-mcp", "enabled": False},
            },
        }
    ),
    ".config/fairlead/mcp.toml": '[mcpServers.own-toml]\ncommand = "own-toml"\n',
    ".config/fairlead/mcp.yaml": "mcpServers:\n  own-yaml:\n    url: https://own.example/mcp\n",
    ".claude.json": """{
  "numStartups": 12,
  "projects": {
    "/ROOT/home/ada/lab/engine": {
      "mcpServers": {
        "cc-local": {"type": "stdio", "command": "local-mcp", "args": [], "env": {}}
      },
      "disabledMcpServers": ["cc-disabled"],
      "enabledMcpjsonServers": [],
      "disabledMcpjsonServers": ["shared-refused"]
    },
    "/somewhere/else": {"mcpServers": {"cc-elsewhere": {"command": "no"}}}
  },
  "mcpServers": {
    "cc-user": {
      "type": "http",
      "url": "https://cc.example/mcp",
      "headers": {"Authorization": "Bearer ${CC_TOKEN}"},
      "headersHelper": "print-headers",
      "oauth": {"clientId": "abc", "callbackPort": 8080}
    },
    "cc-disabled": {"command": "cc-disabled"}
  }
}
""",
    ".config/Claude/claude_desktop_config.json": json.dumps(
        {"mcpServers": {"desktop": {"command": "uvx", "args": ["d-mcp"], "env": {"A": "${A}"}}}}
    ),
    ".cursor/mcp.json": json.dumps(
        {
            "mcpServers": {
                "cursor-local": {
                    "command": "${userHome}/bin/mcp",
                    "args": ["${workspaceFolder}"],
                    "envFile": "${workspaceFolder}/.env",
                },
                "cursor-remote": {
                    "url": "https://cur.example/mcp",
                    "headers": {"X": "${env:CUR}"},
                    "auth": {"CLIENT_ID": "id", "CLIENT_SECRET": "s", "scopes": ["a"]},
                },
            }
        }
    ),
    ".config/Code/User/mcp.json": """{
  // what VS Code writes
  "inputs": [
    {"type": "promptString", "id": "gh-token", "description": "GitHub token", "password": true},
  ],
  "servers": {
    "code-stdio": {
      "type": "stdio",
      "command": "code-mcp",
      "env": {"GH": "${input:gh-token}", "PORT": 8080, "GONE": null},
    },
    "code-sse": {"type": "sse", "url": "https://code.example/sse"}, /* the old one */
  },
}
""",
    ".config/Code/User/profiles/-7a2f/mcp.json": json.dumps(
        {"servers": {"code-profile": {"type": "http", "url": "https://profile.example/mcp"}}}
    ),
    ".config/Code - Insiders/User/mcp.json": json.dumps(
        {"servers": {"insiders": {"type": "stdio", "command": "insiders-mcp"}}}
    ),
    ".vscode-server/data/User/mcp.json": json.dumps(
        {"servers": {"code-server": {"type": "stdio", "command": "server-mcp"}}}
    ),
    ".codex/config.toml": """model = "gpt"

[mcp_servers.codex-stdio]
command = "codex-mcp"
args = ["--x"]
env_vars = ["HOME_TOKEN", { name = "OTHER", source = "local" }]
startup_timeout_sec = 20
tool_timeout_sec = 45.5
disabled_tools = ["rm"]

[mcp_servers.codex-stdio.env]
PLAIN = "${NOT_EXPANDED}"

[mcp_servers."codex.http"]
url = "https://codex.example/mcp"
bearer_token_env_var = "CODEX_TOKEN"
http_headers = { "X-A" = "1" }
env_http_headers = { "X-B" = "B_VAR" }
enabled_tools = ["search"]
scopes = ["read"]
oauth = { client_id = "cid", callback_port = 99 }

[mcp_servers.codex-off]
command = "off"
enabled = false
""",
    ".gemini/settings.json": json.dumps(
        {
            "mcp": {"excluded": ["gem-excluded"]},
            "mcpServers": {
                "gem-stdio": {"command": "g", "timeout": 30000, "excludeTools": ["x"]},
                "gem-http": {"httpUrl": "https://gem.example/mcp", "headers": {"K": "$GEM_KEY"}},
                "gem-auto": {"url": "https://gem.example/auto"},
                "gem-tcp": {"tcp": "wss://gem.example/ws"},
                "gem-excluded": {"command": "gx"},
                "gem-switched": {"command": "gs"},
            },
        }
    ),
    ".gemini/mcp-server-enablement.json": json.dumps({"gem-switched": {"enabled": False}}),
    ".gemini/config/mcp_config.json": json.dumps(
        {"mcpServers": {"antigravity": {"serverUrl": "https://anti.example/mcp"}}}
    ),
    ".qwen/settings.json": json.dumps(
        {"mcp": {"allowed": ["qwen"]}, "mcpServers": {"qwen": STDIO, "qwen-not-allowed": REMOTE}}
    ),
    ".codeium/windsurf/mcp_config.json": json.dumps(
        {
            "mcpServers": {
                "wind": {
                    "serverUrl": "https://wind.example/mcp",
                    "headers": {"A": "Bearer ${env:WIND}"},
                    "disabledTools": ["a"],
                },
                "wind-off": {"command": "w", "disabled": True},
            }
        }
    ),
    ".config/zed/settings.json": """{
  // Zed settings
  "theme": "One Dark",
  "context_servers": {
    "zed-new": {"command": "zed-mcp", "args": ["a"], "env": {}, "timeout": 30},
    "zed-old": {"command": {"path": "old-mcp", "args": ["b"], "env": {"E": "1"}}},
    "zed-extension": {"source": "extension", "settings": {"key": "v"}},
    "zed-off": {"enabled": false, "command": "z"},
  },
}
""",
    ".config/opencode/opencode.jsonc": """{
  "$schema": "https://opencode.ai/config.json", // comment
  "mcp": {
    "oc-local": {
      "type": "local",
      "command": ["bun", "x", "oc-mcp"],
      "environment": {"K": "{env:OC_KEY}"},
      "timeout": 7000,
    },
    "oc-remote": {
      "type": "remote",
      "url": "https://oc.example/mcp",
      "headers": {"Authorization": "Bearer {file:./token.txt}"},
      "enabled": false,
    },
  },
}
""",
    ".config/opencode/token.txt": "from-a-file\n",
    ".omp/agent/mcp.json": json.dumps(
        {
            "mcpServers": {
                "omp": {"command": "omp-mcp", "env": {"T": "!echo hi"}, "timeout": 0},
                "omp-off": {"command": "omp-off"},
            },
            "disabledServers": ["omp-off"],
        }
    ),
    ".omp/profiles/day/agent/mcp.json": json.dumps({"mcpServers": {"omp-work": STDIO}}),
    ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json": (
        json.dumps(
            {
                "mcpServers": {
                    "cline-sse": {"url": "https://cline.example/sse", "timeout": 60},
                    "cline-http": {"type": "streamableHttp", "url": "https://cline.example/mcp"},
                    "cline-nested": {"transport": {"type": "stdio", "command": "c", "args": ["n"]}},
                    "cline-off": {"command": "c", "disabled": True},
                }
            }
        )
    ),
    ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json": (
        json.dumps({"mcpServers": {"roo": {"command": "r", "env": {"A": "${env:ROO}"}}}})
    ),
    ".config/goose/config.yaml": """GOOSE_PROVIDER: x
extensions:
  developer:
    type: builtin
    enabled: true
  goose-stdio:
    type: stdio
    enabled: true
    cmd: goose-mcp
    args: [run]
    envs: {MODE: fast}
    env_keys: [GOOSE_KEY]
    timeout: 300
    available_tools: []
  goose-http:
    type: streamable_http
    enabled: false
    uri: https://goose.example/$TENANT/mcp
    envs: {TENANT: acme}
    headers:
      Authorization: Bearer ${ GOOSE_TOKEN }
    env_keys: [GOOSE_TOKEN]
""",
    ".continue/config.yaml": """name: mine
mcpServers:
  - name: cont-stdio
    command: cont-mcp
    args: [a]
    connectionTimeout: 9000
  - name: cont-http
    type: streamable-http
    url: https://cont.example/mcp
    apiKey: ${{ secrets.CONT_KEY }}
""",
    ".continue/mcpServers/extra.json": json.dumps({"mcpServers": {"cont-extra": STDIO}}),
    ".copilot/mcp-config.json": json.dumps(
        {"mcpServers": {"copilot": {"type": "local", **STDIO, "tools": ["*"]}}}
    ),
    ".kiro/settings/mcp.json": json.dumps(
        {"mcpServers": {"kiro": {**REMOTE, "disabled": False, "autoApprove": []}}}
    ),
    ".lmstudio/mcp.json": json.dumps({"mcpServers": {"lmstudio": STDIO}}),
    ".config/amp/settings.json": json.dumps({"amp.mcpServers": {"amp": STDIO}}),
    ".config/Trae/User/mcp.json": json.dumps({"mcpServers": {"trae": STDIO}}),
    ".config/crush/crush.json": json.dumps(
        {"mcp": {"crush": {"type": "http", **REMOTE, "timeout": 120}}}
    ),
    ".config/kilo/kilo.json": json.dumps(
        {
            "mcp": {
                "timeout": {"startup": 1, "request": 2},
                "servers": {
                    "kilo": {
                        "type": "local",
                        "command": ["kilo-mcp"],
                        "timeout": {"startup": 1000, "request": 2000},
                    },
                    "kilo-off": {"type": "remote", "url": "https://k.example", "disabled": True},
                },
            }
        }
    ),
    ".kimi/mcp.json": json.dumps({"mcpServers": {"kimi": STDIO}}),
    ".factory/mcp.json": json.dumps({"mcpServers": {"factory": {"type": "http", **REMOTE}}}),
    ".vibe/config.toml": """[[mcp_servers]]
name = "vibe-http"
transport = "streamable-http"
url = "https://vibe.example/mcp"
api_key_env = "VIBE_KEY"
api_key_header = "X-Api-Key"
api_key_format = "{token}"

[[mcp_servers]]
name = "vibe-stdio"
transport = "stdio"
command = "vibe-mcp"
""",
    ".grok/config.toml": '[mcp_servers.grok]\nurl = "https://grok.example/mcp"\n',
    ".qoder/mcp.json": json.dumps({"mcpServers": {"qoder": STDIO}}),
    ".sema4ai/sema4ai-studio/mcp_servers.json": json.dumps({"mcpServers": {"sema4": STDIO}}),
    ".config/5ire/mcp.json": json.dumps({"mcpServers": {"5ire": STDIO}}),
    ".mastracode/mcp.json": json.dumps({"mcpServers": {"mastra": STDIO}}),
    ".pi/agent/mcp.json": json.dumps({"mcpServers": {"pi": STDIO}}),
    ".fx/mcp.json": json.dumps({"mcp": {"fx": STDIO}}),
    ".mcporter/mcporter.jsonc": """{
  "mcpServers": {
    "porter": {"baseUrl": "https://porter.example/mcp", "headers": {"A": "$env:PORTER"}},
  },
}
""",
}

PROJECT_FILES: dict[str, str] = {
    ".fairlead/mcp.json": json.dumps({"mcpServers": {"p-own": {"command": "p-own"}}}),
    ".cursor/mcp.json": json.dumps({"mcpServers": {"p-cursor": {"command": "p-cursor"}}}),
    ".vscode/mcp.json": json.dumps({"servers": {"p-code": {"command": "p-code"}}}),
    ".codex/config.toml": '[mcp_servers.p-codex]\ncommand = "p-codex"\n',
    ".gemini/settings.json": json.dumps({"mcpServers": {"p-gemini": {"command": "p-gemini"}}}),
    ".zed/settings.json": json.dumps({"context_servers": {"p-zed": {"command": "p-zed"}}}),
    "opencode.json": json.dumps({"mcp": {"p-oc": {"type": "local", "command": ["p-oc"]}}}),
    ".omp/mcp.json": json.dumps({"mcpServers": {"p-omp": {"command": "p-omp"}}}),
    ".roo/mcp.json": json.dumps({"mcpServers": {"p-roo": {"command": "p-roo"}}}),
    ".continue/mcpServers/p.yaml": "mcpServers:\n- name: p-cont\n  command: p-cont\n",
    ".kiro/settings/mcp.json": json.dumps({"mcpServers": {"p-kiro": {"command": "p-kiro"}}}),
    ".crush.json": json.dumps({"mcp": {"p-crush": {"type": "stdio", "command": "p-crush"}}}),
    ".grok/config.toml": '[mcp_servers.p-grok]\ncommand = "p-grok"\n',
    "config/mcporter.json": json.dumps({"mcpServers": {"p-porter": {"command": "p-porter"}}}),
    "mcp.json": json.dumps({"mcpServers": {"p-root": {"command": "p-root"}}}),
    ".mcp.json": json.dumps(
        {
            "mcpServers": {
                "p-shared": {"command": "p-shared"},
                "shared-refused": {"command": "refused"},
            }
        }
    ),
}


def write(root: Path, files: dict[str, Any]) -> None:
    """Write files below a folder; content that is not text is written as JSON."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def full_home(root: Path) -> HostPaths:
    """Create a home directory with a file of every program, and a project with some of them."""
    files = {n: c.replace("/ROOT", str(root)) for n, c in USER_FILES.items()}
    write(root / HOME, files)
    write(root / PROJECT, PROJECT_FILES)
    return machine_in(root)


def machine_in(root: Path, **env: str) -> HostPaths:
    """Return the file locations of a machine below `root`, with a home and a project."""
    (root / PROJECT).mkdir(parents=True, exist_ok=True)
    return HostPaths(
        platform="linux",
        home=str(root / HOME),
        cwd=str(root / PROJECT),
        env=env,
        root=str(root),
    )
