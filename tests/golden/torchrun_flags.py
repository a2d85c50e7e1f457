"""Writes torchrun-flags.json: what torchrun and torch.distributed.launch make of command lines.

    /usr/bin/python3 tests/golden/torchrun_flags.py
"""

import json
import pathlib
import warnings

import torch
from torch.distributed import launch, run

warnings.simplefilter("ignore")
FOLDER = pathlib.Path(__file__).resolve().parent

RUN = [
    "train.py",
    "--nproc_per_node=4 train.py",
    "--nproc_per_node 4 train.py --lr 0.1 --nproc_per_node 9",
    "--nproc_per_node auto train.py",
    "--nproc_per_node=2 --nnodes=2 --node_rank=1 --master_addr=alpha --master_port=12345 train.py",
    "--standalone --nproc_per_node=2 train.py",
    "--nnodes=1:1 train.py",
    "--nnodes=2:2 --node_rank 0 --rdzv_id=job7 --rdzv_backend=c10d --rdzv_endpoint=beta:29400 train.py a b",
    "--max_restarts=3 --monitor_interval=1 train.py",
    "--log_dir=logs -r 3 -t 1 train.py",
    "--log_dir logs --redirects 0:1,1:2 --tee 3 train.py",
    "train.py --help",
    "train.py --nnodes 7 --master_addr x",
]
LAUNCH = [
    "--nproc_per_node=2 train.py --lr 0.1",
    "--use_env --nproc_per_node=2 train.py --lr 0.1",
    "--nproc_per_node=2 --use_env train.py --use_env",
    "train.py",
]


def taken(argv):
    args = run.parse_args(argv)
    nodes = args.nnodes.split(":")
    return {
        "nodes": [int(nodes[0]), int(nodes[-1])],
        "tabs": int(args.nproc_per_node) if args.nproc_per_node.isdigit() else args.nproc_per_node,
        "nodeRank": args.node_rank,
        "masterAddr": args.master_addr,
        "masterPort": args.master_port,
        "standalone": args.standalone,
        "rdzvId": args.rdzv_id,
        "rdzvBackend": args.rdzv_backend,
        "rdzvEndpoint": args.rdzv_endpoint,
        "maxRestarts": args.max_restarts,
        "monitorInterval": args.monitor_interval,
        "logDir": args.log_dir,
        "redirects": args.redirects,
        "tee": args.tee,
        "script": args.training_script,
        "args": args.training_script_args,
    }


def script_arguments(argv, local_rank):
    """What sys.argv[1:] is in the script of a worker: the command is python -u, the script, its arguments."""
    _, _, words = run.config_from_args(launch.parse_args(argv))
    behind = words[words.index("train.py") + 1 :]
    return [word.replace("${local_rank}", str(local_rank)) for word in behind]


lines = {
    "made": {"by": "tests/golden/torchrun_flags.py", "torch": torch.__version__.split("a")[0]},
    "run": [{"line": line, "taken": taken(line.split())} for line in RUN],
    "launch": [{"line": line, "localRank": 1, "args": script_arguments(line.split(), 1)} for line in LAUNCH],
}
(FOLDER / "torchrun-flags.json").write_text(json.dumps(lines, indent=1) + "\n")
