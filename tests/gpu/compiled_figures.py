#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The card kernels as NVRTC compiles them: no spills, and no more registers than is committed.

It needs no card: the assembler inside NVRTC reports both.

usage: compiled_figures.py TORCH_FOLDER [--write]
--write: commit what is found to registers.json
Exits with status 77 where this LibTorch has no NVRTC, or one of another version.
"""
import concurrent.futures
import ctypes
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
COMMITTED = HERE / "registers.json"
KERNELS = HERE.parents[1] / "diffusion/kernels/card_kernels.cu"
ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
NVRTC = (13, 0)  # of the committed figures
SKIPPED = 77
ENTRY = re.compile(
    r"Compiling entry function '(\w+)'.*?"
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
    r"Used (\d+) registers",
    re.DOTALL,
)


def nvrtc_of(torch):
    """NVRTC beside LibTorch, or inside it; None: there is none."""
    for folder in (torch.parent / "nvidia", torch / "lib"):
        for path in sorted(folder.rglob("libnvrtc*.so.*")):
            if re.fullmatch(r"libnvrtc(-\w+)?\.so\.\d+", path.name):
                return ctypes.CDLL(str(path))
    return None


def compiled(nvrtc, architecture):
    """{kernel: (bytes of stack and spills, registers)}, as the assembler reports them."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = KERNELS.read_bytes()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, KERNELS.name.encode(), 0, None, None)
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=--verbose"]
    words = (ctypes.c_char_p * len(options))(*(each.encode() for each in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), words)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if status != 0:
        sys.exit(f"{KERNELS.name} does not compile for {architecture}: {log.value.decode()}")
    found = ENTRY.findall(log.value.decode())
    return {name: (sum(map(int, spills)), int(used)) for name, *spills, used in found}


def main():
    nvrtc = nvrtc_of(pathlib.Path(sys.argv[1]))
    if nvrtc is None:
        print(f"skipped: {sys.argv[1]} has no NVRTC, a LibTorch with CUDA has one")
        return SKIPPED
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if (major.value, minor.value) != NVRTC:
        print(f"skipped: NVRTC {major.value}.{minor.value}, figures are of {NVRTC[0]}.{NVRTC[1]}")
        return SKIPPED
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = dict(zip(ARCHITECTURES, pool.map(lambda a: compiled(nvrtc, a), ARCHITECTURES)))
    registers = {a: {k: used for k, (_, used) in sorted(f.items())} for a, f in found.items()}
    if "--write" in sys.argv:
        COMMITTED.write_text(json.dumps(registers, indent=1) + "\n")
    committed = json.loads(COMMITTED.read_text())
    wrong = []
    for architecture, kernels in found.items():
        if kernels.keys() != committed[architecture].keys() or not kernels:
            names = sorted(kernels.keys() ^ committed[architecture].keys())
            wrong.append(f"{architecture}: committed and compiled kernels differ by {names}")
            continue
        for kernel, (spilled, used) in kernels.items():
            most = committed[architecture][kernel]
            if spilled:
                wrong.append(f"{kernel} for {architecture}: {spilled} bytes spilled, expected 0")
            if used > most:
                wrong.append(f"{kernel} for {architecture}: {used} registers, expected {most}")
    for each in wrong:
        print(each)
    kernels = sum(map(len, found.values()))
    most = max(used for each in registers.values() for used in each.values())
    print(f"{kernels} kernels for {len(found)} architectures: at most {most} registers")
    if wrong:
        print("improve the kernel, or run tests/gpu/compiled_figures.py --write and explain it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
