import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setFlagsFromString } from 'node:v8'
import { Command } from 'commander'
import { createServer, type ViteDevServer } from 'vite'
import type { Problem } from '../src/measure/matmul.ts'
import { assemble, FunctionCode } from '../src/wasm/assemble.ts'
import { closeAfter } from './command/close-after.ts'
import { countOf, jsonOption, saveOption } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { type Place, pairRow, type Row } from './row.ts'
import { formatReport } from './table.ts'

/** `npm run bench -- products`: matrix products of the device cpu beside what the CPU's vector instructions allow, beside NumPy, and with `relaxed_madd`. */

interface Flags {
  rounds: number
  python: string
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- products')
  .description(
    'Times matrix products of the device cpu in Node, in turns with a bare loop of the same multiply and add instructions, with NumPy, and with relaxed_madd.',
  )
  .option('--rounds <count>', 'interleaved rounds', countOf(3), 9)
  .option('--python <command>', 'one whose NumPy has OpenBLAS', 'python3')
  .addOption(jsonOption())
  .addOption(saveOption())

/** Of what the bare loop reaches. */
const goal = 0.8
const sizes = [256, 512, 1024]

export async function benchProducts(argv: readonly string[]): Promise<void> {
  const { rounds, python, ...flags } = command.parse(argv, { from: 'user' }).opts<Flags>()
  const place: Place = {
    adapter: 'cpu',
    software: false,
    browser: `Node ${process.versions.node}`,
    date: today(),
    machine: machineLine('before the run', loadNow()),
  }
  // Shaders are modules of Vite.
  const vite = await createServer({
    root: join(import.meta.dirname, '..'),
    server: { middlewareMode: true, hmr: false },
    optimizeDeps: { noDiscovery: true },
    logLevel: 'error',
  })
  const rows = await closeAfter(
    () => vite.close(),
    () => measure(vite, rounds, python, place),
  )
  const report = formatReport(rows, place)
  await publish(
    { report, rows, nameParts: ['cpu', `node-${process.versions.node}`, 'products'] },
    flags,
  )
}

async function measure(
  vite: ViteDevServer,
  rounds: number,
  python: string,
  place: Place,
): Promise<Row[]> {
  type Library = typeof import('../src/gpu/num-threads.ts') &
    typeof import('../src/gpu/wasm/open.ts') &
    typeof import('../src/gpu/wasm/vectors.ts') &
    typeof import('../src/wasm/compile-kernel.ts') &
    typeof import('../src/graph/memory/runtime.ts') &
    typeof import('../src/measure/matmul.ts') &
    typeof import('../src/measure/own-product.ts') &
    typeof import('../src/measure/product.ts')
  const files = [
    ...['gpu/num-threads', 'gpu/wasm/open', 'gpu/wasm/vectors', 'graph/memory/runtime'],
    ...['measure/matmul', 'measure/own-product', 'measure/product', 'wasm/compile-kernel'],
  ]
  const parts = await Promise.all(files.map((file) => vite.ssrLoadModule(`/src/${file}.ts`)))
  const library = Object.assign({}, ...parts) as Library
  const { setNumThreads, openWasm, Runtime, formatProblem, timeMatmul, ownProduct } = library
  // Node 20 has it behind this flag.
  if (!library.hasRelaxedMadd()) setFlagsFromString('--experimental-wasm-relaxed-simd')
  const loop = bareLoop()
  const rows: Row[] = []
  for (const threads of [1, 2]) {
    setNumThreads(threads)
    const runtime = new Runtime(await openWasm())
    const withMadd = new Runtime(
      await openWasm((wgsl, options) =>
        library.compileKernel(wgsl, { ...options, isRelaxed: true }),
      ),
    )
    const numpy = new NumPy(python, threads)
    try {
      const blas = await numpy.version()
      for (const size of sizes)
        for (const form of ['nn', 'nt', 'tn'] as const) {
          const problem: Problem = [form, size, size, size]
          const name = `${formatProblem(problem)}, ${threads === 1 ? '1 thread' : `${threads} threads`}`
          note(`${name}, ${rounds} rounds`)
          const flops = 2 * size ** 3
          const bare: number[] = []
          const theirs: number[] = []
          const fused: number[] = []
          const plain: number[] = []
          const task = library.taskOf(problem)
          const operands = library.operandsOf(problem)
          const products = await Promise.all(
            [withMadd, runtime].map((on) => ownProduct(on, task, ...operands)),
          )
          const times = Math.ceil(1e9 / flops)
          library.checkProduct('relaxed_madd', task, ...operands, await products[0].result())
          const [{ runsMs }] = await timeMatmul(runtime, problem, {
            preferredOnly: true,
            runs: rounds,
            minMs: 20,
            async onRound() {
              bare.push(threads * loop())
              theirs.push(flops / (await numpy.productMs(form, size)) / 1e6)
              for (const [i, rates] of [fused, plain].entries()) {
                const beganMs = performance.now()
                await products[i].run(times)
                rates.push((times * flops) / (performance.now() - beganMs) / 1e6)
              }
            },
          })
          for (const product of products) product.dispose()
          const ours = runsMs.map((ms) => flops / ms / 1e6)
          const options = { row: name, unit: 'GFLOP/s', better: 'higher' } as const
          const peer = threads === 1 ? 'bare loop' : `bare loop x ${threads}`
          rows.push(pairRow({ ...options, peer, goal }, place, ours, bare))
          rows.push(pairRow({ ...options, peer: blas }, place, ours, theirs))
          const madd = { ...options, row: `${name}, relaxed_madd`, peer: 'multiply and add' }
          rows.push(pairRow(madd, place, fused, plain))
        }
    } finally {
      numpy.close()
      runtime.gpu.close()
      withMadd.gpu.close()
    }
  }
  return rows
}

/** Twelve vectors: as many as stay in registers, and as the latency of a multiplication and an addition needs. */
const chains = 12

/** A loop of multiplications and additions of vectors in registers. Each call runs it some 20 ms and returns GFLOP/s of one core. */
function bareLoop(): () => number {
  const code = new FunctionCode()
  const end = code.parameter('i32')
  const [x, y, first] = [0.999, 1e-3, 0.5].map((value) =>
    code.v128Const(new Array(4).fill(new Int32Array(Float32Array.of(value).buffer)[0])),
  )
  const sums = Array.from({ length: chains }, () => code.copy(first))
  code.loop(end, 1, () => {
    for (const sum of sums) code.set(sum, code.v128('f32x4.add', code.v128('f32x4.mul', sum, x), y))
  })
  // They count, so the engine computes them.
  const address = code.i32Const(0)
  for (const [i, sum] of sums.entries()) code.store(address, sum, 16 * i)
  const memory = new WebAssembly.Memory({ initial: 1 })
  const module = new WebAssembly.Module(assemble({ run: code }))
  const { run } = new WebAssembly.Instance(module, { host: { memory } }).exports as {
    run(count: number): void
  }
  const count = 2_000_000
  for (let i = 0; i < 5; i++) run(count)
  return () => {
    const beganMs = performance.now()
    run(count)
    return (count * chains * 4 * 2) / (performance.now() - beganMs) / 1e6
  }
}

/** Products of float32 in NumPy, in a process that times them when asked. */
class NumPy {
  readonly #process: ChildProcessWithoutNullStreams
  readonly #lines: AsyncIterator<string>

  constructor(python: string, threads: number) {
    const names = ['OPENBLAS', 'OMP', 'MKL', 'BLIS'].map((name) => `${name}_NUM_THREADS`)
    const env = Object.fromEntries(names.map((name) => [name, String(threads)]))
    // Without it, its threads spin while ours are timed.
    const sleeps = { OPENBLAS_THREAD_TIMEOUT: '4' }
    this.#process = spawn(python, ['-c', script], { env: { ...process.env, ...env, ...sleeps } })
    this.#process.stderr.pipe(process.stderr)
    this.#lines = createInterface(this.#process.stdout)[Symbol.asyncIterator]()
  }

  version(): Promise<string> {
    return this.#ask('version')
  }

  async productMs(form: string, size: number): Promise<number> {
    return Number(await this.#ask(`${form} ${size}`))
  }

  close(): void {
    this.#process.stdin.end()
  }

  async #ask(line: string): Promise<string> {
    this.#process.stdin.write(`${line}\n`)
    const { value, done } = await this.#lines.next()
    if (done) throw new Error('bench: the Python process has ended. Choose another with --python.')
    return value
  }
}

/** It lasts some 20 ms, of which it says the mean. */
const script = `
import sys, time, numpy, ctypes
def blas():
    names = [line.split()[-1] for line in open('/proc/self/maps') if 'blas' in line]
    found = next((name for name in names if 'openblas' in name), names[0] if names else 'an unknown BLAS')
    return 'NumPy %s, %s' % (numpy.__version__, found.split('/')[-1])
known = {}
for line in sys.stdin:
    words = line.split()
    if words[0] == 'version':
        numpy.ones((64, 64), 'f') @ numpy.ones((64, 64), 'f')
        print(blas(), flush=True)
        continue
    form, size = words[0], int(words[1])
    if (form, size) not in known:
        a, b = (numpy.random.rand(size, size).astype('f') for _ in range(2))
        a = a.T if form == 'tn' else a
        b = b.T if form == 'nt' else b
        a @ b
        known[form, size] = a, b, numpy.empty((size, size), 'f')
    a, b, c = known[form, size]
    times, began = 0, time.perf_counter()
    while time.perf_counter() - began < 0.02:
        numpy.matmul(a, b, out=c)
        times += 1
    print((time.perf_counter() - began) / times * 1000, flush=True)
`
