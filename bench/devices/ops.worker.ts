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
/** Steps of the newest op. */
const steps = new Map<Name, { run(): Promise<number>; free(): void }>()

/** A block is at least so long. */
const blockMs = 60

const worker = {
  names: () => Object.keys(ops),

  /** Returns the adapter's name. */
  async open(): Promise<string> {
    for (const name of Object.keys(open) as Name[])
      runtimes.set(name, new Runtime(await open[name]()))
    const { vendor, architecture, description } = runtimes.get('adapter')!.facts
    return [vendor, architecture, description].filter(Boolean).join(' ')
  },

  /** Compiles the op's step on a device. Returns ms up to the end of the first step, and its loss. */
  async load(op: string, on: Name): Promise<{ firstMs: number; loss: number }> {
    const { shapes, indices, module, update = plainUpdate, result } = ops[op]
    steps.get(on)?.free()
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
    const free = () => {
      program.destroy()
      for (const one of [...operands, ...made.parameters()]) one.destroy()
    }
    steps.set(on, { run, free })
    const loss = await run()
    return { firstMs: performance.now() - beganMs, loss }
  },

  /** Returns ms of a step, by a block of them. */
  async time(on: Name): Promise<number> {
    const { run } = steps.get(on)!
    const beganMs = performance.now()
    for (let count = 1; ; count++) {
      await run()
      const ms = performance.now() - beganMs
      if (ms >= blockMs) return ms / count
    }
  },
}
export type OpsWorker = typeof worker
expose(worker)
