"""Write the report of a result file: a page, or Markdown where the name says so.

python -m bench.peers.report RESULT.json OUT.html
python -m bench.peers.report RESULT.json OUT.md
"""

import json
import sys
from pathlib import Path

from bench.peers.report import markdown, write_report


def main(words: list[str]) -> None:
    if len(words) != 2:
        raise SystemExit(__doc__)
    result, path = json.loads(Path(words[0]).read_text(encoding="utf-8")), Path(words[1])
    if path.suffix == ".md":
        path.write_text(markdown(result), encoding="utf-8")
    else:
        write_report(result, path)
    print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
