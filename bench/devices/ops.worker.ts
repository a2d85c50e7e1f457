import { expose } from 'comlink'
import { compile, manualSeed, mean, setNumThreads, tensorType } from '../../src/entries/index.ts'
import { Sequential } from '../../src/entries/nn.ts'
import { openGpu, Runtime } from '../../src/entries/runtime.ts'
import { openWasm } from '../../src/gpu/wasm/open.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import { RandomStream } from '../../src/util/random.ts'
import { countElements } from '../../src/util/shape.ts'
import { ops, plainUpdate } from './ops.ts'

/** Names as `bench/devices.ts` has them. */
const open = {
  adapter: () => openGpu(),
  oneThread: () => openCpu(1),
  twoThreads: () => openCpu(2),
} as const
type Name = keyof typeof open

const openCpu = (threads: number) => {
  setNumThreads(threads)
  return openWasm()
}

const runtimes = new Map<Name, Runtime>()
const steps = new Map<Name, () => Promise<number>>()

/** In which the browser's best compiler has had its turn too. */
const warmUpMs = 1000
/** A block is at least so long. */
const blockMs = 100

/** Returns ms of a step, in a block that takes `atLeastMs`. */
async function timed(run: () => Promise<number>, atLeastMs: number): Promise<number> {
  const beganMs = performance.now()
  for (let count = 1; ; count++) {
    await run()
    const ms = performance.now() - beganMs
    if (ms >= atLeastMs) return ms / count
  }
}

const worker = {
  /** Opens the devices, and returns the names of the ops. */
  async open(): Promise<string[]> {
    for (const name of Object.keys(open) as Name[])
      runtimes.set(name, new Runtime(await open[name]()))
    return Object.keys(ops)
  },

  /** Compiles the op's step on a device. Returns ms up to the end of the first step, and its loss. */
  async load(op: string, on: Name): Promise<{ firstMs: number; loss: number }> {
    const { shapes, indices, module, update = plainUpdate, result } = ops[op]
    manualSeed(0)
    const random = new RandomStream(0, 0)
    const operands = shapes.map(
      (shape) =>
        new Parameter(
          shape,
          Float32Array.from({ length: countElements(shape) }, () => 0.2 * (random.unit() - 0.5)),
        ),
    )
    const [shape, end] = indices ?? [[1], 1]
    const given = Int32Array.from({ length: countElements(shape) }, () =>
      Math.floor(random.unit() * end),
    )
    const made = module?.() ?? new Sequential()
    const beganMs = performance.now()
    const parameters = module ? [...made.parameters()] : operands
    for (const operand of operands) operand.requiresGrad = !module
    const afterwards = update(parameters)
    const program = await compile(
      ({ indices }) => {
        const loss = mean(result(operands, { indices, module: made }).square())
        loss.backward()
        afterwards()
        return { loss }
      },
      { indices: tensorType(shape, 'i32') },
      { runtime: runtimes.get(on)! },
    )
    const run = async () => (await program.run({ indices: given })).loss[0]
    steps.set(on, run)
    const loss = await run()
    const firstMs = performance.now() - beganMs
    await timed(run, warmUpMs)
    return { firstMs, loss }
  },

  /** Returns ms of a step. */
  time: (on: Name) => timed(steps.get(on)!, blockMs),
}
export type OpsWorker = typeof worker
expose(worker)
