import { compile } from '../../graph/compile/compile.ts'
import { defaultRuntimeOf } from '../../graph/memory/default-runtime.ts'
import { piecesOf } from '../../graph/plan/pieces.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import { getRngState, normalNumbers, setRngState } from '../../nn/init.ts'
import { checkModule, type Module } from '../../nn/module.ts'
import { SGD } from '../../optim/sgd.ts'
import { calledAs } from '../../util/called-as.ts'
import { TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkOptions, isCount } from '../../util/options.ts'
import { countElements, type TensorType } from '../../util/shape.ts'
import { layersOf } from './cut.ts'
import { pipeline } from './pipe.ts'
import { ScheduleGPipe } from './schedule.ts'

export interface LayerTimesOptions {
  /** Timed steps, of which the median counts; default 5. */
  readonly repeats?: number
}

const warmups = 2

/**
 * Measures what each of `layersOf(module)` takes: its forward and backward on the module's device, for `balance` of `pipeline`.
 *
 * `input`: what a micro-batch looks like; numbers are drawn, indices are 0. The module's parameters and buffers are as before afterwards.
 * Devices differ: let one rank measure, and broadcast its times. units: ms, by layer.
 * errors: `graph.misuse` where `forward` does not call the layers in their order.
 * source: torchgpipe's balance_by_time, Kim et al., arXiv 2004.09910.
 */
export async function layerTimes(
  module: Module,
  input: TensorType,
  options: LayerTimesOptions = {},
): Promise<number[]> {
  const { repeats = 5 } = checkOptions('layerTimes', options, { repeats: true })
  if (!isCount(repeats)) {
    throw new TabringError(
      'config.invalid',
      `layerTimes: repeats must be a whole number above 0, got ${quoted(repeats)}. The default is 5.`,
    )
  }
  checkModule('layerTimes', module)
  if (!module.parameters().some(({ requiresGrad }) => requiresGrad)) {
    throw new TabringError(
      'graph.misuse',
      'layerTimes: no parameter requires a gradient, so there is no backward to time. Measure before freezing.',
    )
  }
  const layers = layersOf(module)
  const devices = [module.parameters()[0]?.device ?? (await defaultRuntimeOf()).device] as const
  const before = await module.stateDict()
  const random = getRngState()
  const pipe = await pipeline(module, {
    splitSpec: layers.slice(1).map(([path]) => path),
    devices,
  })
  const squares = (output: Tensor) => output.mul(output).mean()
  const schedule = new ScheduleGPipe(pipe, { microBatches: 1, lossFn: squares })
  const optimizer = new SGD(module.parameters(), { lr: 0 })
  const step = await calledAs('layerTimes', 'compile', () =>
    compile(
      ({ x }) => {
        optimizer.zeroGrad()
        const { loss } = schedule.step(x, x)
        optimizer.step()
        return { loss }
      },
      { x: input },
      { device: devices[0] },
    ),
  )
  const runs: number[][] = []
  try {
    const x = contentsLike(input)
    for (let run = -warmups; run < repeats; run++) {
      const marks: { name: string; atMs: number }[] = []
      step.onMark = (name, atMs) => marks.push({ name, atMs })
      await step.run({ x })
      if (run >= 0) runs.push(timesByStage(marks, layers.length))
    }
  } finally {
    step.destroy()
    pipe.release()
    module.loadStateDict(before)
    setRngState(random)
  }
  return layers.map((_, stage) => median(runs.map((times) => times[stage])))
}

function contentsLike({ shape, dtype }: TensorType) {
  const count = countElements(shape)
  if (dtype === 'i32') return new Int32Array(count)
  return dtype === 'u32' ? new Uint32Array(count) : normalNumbers(count, 1)
}

/** Milliseconds of each stage. */
function timesByStage(marks: Parameters<typeof piecesOf>[0], stages: number): number[] {
  const times = new Array<number>(stages).fill(0)
  for (const { stage, beginMs, endMs = beginMs } of piecesOf(marks))
    if (stage !== undefined) times[stage] += endMs - beginMs
  return times
}

function median(values: readonly number[]): number {
  const inOrder = values.toSorted((a, b) => a - b)
  return inOrder[inOrder.length >> 1]
}
