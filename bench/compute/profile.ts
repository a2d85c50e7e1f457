import { blockMeans, median, spread } from '../statistics.ts'
import { type RecordedDispatch, recordDispatches, timeEncoding } from './calls.ts'
import type { OurTrainer } from './tabring.ts'
import type { Batch } from './task.ts'

/** Where a step of ours spends its time. */
export interface StepProfile {
  dispatches: number
  /** JavaScript per dispatch in a step: set pipeline, set bind group, dispatch. Median of samples. */
  encodeUsPerDispatch: number
  /** Smallest and largest of those blocks. */
  encodeUsSpread: [number, number]
  /** The whole encoder per dispatch: made, pass begun and ended, outputs copied, finished. Likewise. */
  wholeEncodeUsPerDispatch: number
  wholeEncodeUsSpread: [number, number]
  /** Beginning a step's passes: one, three on the steps that are timed; likewise. */
  beginPassUs: number
  /** The same three calls with all caches warm, many times over in one pass; median. */
  warmEncodeUsPerDispatch: number
  /** JavaScript of a whole step until it is submitted: writes, encoding, submit; median. */
  stepJsUs: number
  /** Device time by kernel, in the order of the step. */
  kernels: { label: string; groups: [number, number, number]; us: number }[]
  /** Variant by call. */
  chosen: Readonly<Record<string, string>>
}

/** Samples of a step's encoding. */
const encodedBlocks = 30
/** Encoding of seven dispatches is some three ticks of the clock, so a sample is of as many steps as make this many dispatches. */
const blockDispatches = 70
const encodeRepeats = 200
const encodeSamples = 31
const kernelSamples = 5
/** A kernel is repeated for about so long in one sample. */
const kernelSampleMs = 20

export async function profileStep(trainer: OurTrainer, batch: Batch): Promise<StepProfile> {
  const { program, runtime } = trainer
  const blockSteps = Math.ceil(blockDispatches / program.dispatchCount)
  const jsUs: number[] = []
  const times = await timeEncoding(async (endStep) => {
    for (let step = 0; step < encodedBlocks * blockSteps; step++) {
      await trainer.step(batch, true)
      endStep()
      jsUs.push(program.encodeMs * 1000)
    }
  })
  const recorded = await recordDispatches(() => trainer.step(batch, true))
  const { device, queue } = runtime.gpu

  const encode = (pass: GPUComputePassEncoder, dispatches: readonly RecordedDispatch[]) => {
    for (const { pipeline, bindGroup, groups } of dispatches) {
      const [x, y, z] = groups
      pass.setPipeline(pipeline)
      pass.setBindGroup(0, bindGroup)
      pass.dispatchWorkgroups(x, y, z)
    }
  }
  // Encoded and thrown away. One step is too short for the clock, so one pass has many.
  const encodeUs: number[] = []
  for (let sample = 0; sample < encodeSamples; sample++) {
    const encoder = device.createCommandEncoder()
    const pass = encoder.beginComputePass()
    const began = performance.now()
    for (let repeat = 0; repeat < encodeRepeats; repeat++) encode(pass, recorded)
    encodeUs.push(((performance.now() - began) * 1000) / (encodeRepeats * recorded.length))
    pass.end()
    encoder.finish()
    await new Promise((resolve) => setTimeout(resolve))
  }

  const timed = async (dispatch: RecordedDispatch, times: number): Promise<number> => {
    const encoder = device.createCommandEncoder()
    const pass = encoder.beginComputePass()
    for (let time = 0; time < times; time++) encode(pass, [dispatch])
    pass.end()
    const began = performance.now()
    queue.submit([encoder.finish()])
    await queue.onSubmittedWorkDone()
    return performance.now() - began
  }
  const kernels: StepProfile['kernels'] = []
  for (const dispatch of recorded) {
    await timed(dispatch, 2)
    const roughMs = (await timed(dispatch, 5)) / 5
    const times = Math.max(4, Math.ceil(kernelSampleMs / Math.max(roughMs, 0.01)))
    // The difference removes the cost of a submit.
    const oneMs: number[] = []
    const manyMs: number[] = []
    for (let sample = 0; sample < kernelSamples; sample++) {
      oneMs.push(await timed(dispatch, 1))
      manyMs.push(await timed(dispatch, 1 + times))
    }
    const us = Math.max(0, ((median(manyMs) - median(oneMs)) * 1000) / times)
    kernels.push({ label: dispatch.pipeline.label, groups: dispatch.groups, us })
  }
  const blocksUs = (ms: readonly number[], dispatches: number) =>
    blockMeans(ms, blockSteps).map((mean) => (mean * 1000) / dispatches)
  const insideUs = blocksUs(times.inside, recorded.length)
  const wholeUs = blocksUs(times.whole, recorded.length)
  return {
    dispatches: recorded.length,
    encodeUsPerDispatch: median(insideUs),
    encodeUsSpread: spread(insideUs),
    wholeEncodeUsPerDispatch: median(wholeUs),
    wholeEncodeUsSpread: spread(wholeUs),
    beginPassUs: median(blocksUs(times.beginPass, 1)),
    warmEncodeUsPerDispatch: median(encodeUs),
    stepJsUs: median(jsUs),
    kernels,
    chosen: program.prepared.chosen,
  }
}
