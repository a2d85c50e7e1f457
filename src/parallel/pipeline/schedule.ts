import { ofRows } from '../../graph/functions/linear.ts'
import { cat } from '../../graph/functions/shape.ts'
import { StageMarks, type StageOrder, type StageTask } from '../../graph/trace/stage-marks.ts'
import { mustBeTensor, type Tensor } from '../../graph/trace/tensor.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { nextNodeId } from '../../graph/trace/value.ts'
import { sameDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkArgument, checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { byName, countArguments } from '../../util/plain-callers.ts'
import { gpipeOrder, interleavedOrder, type TaskOrder } from './orders.ts'
import { nameOfStage, Pipe } from './pipe.ts'
import { simulateSchedule, type TaskCosts, type TaskSpan } from './simulate.ts'

export interface ScheduleOptions {
  /** The number of micro-batches; it must divide the batch. */
  readonly microBatches?: number
  /** Instead of `microBatches`: the samples of each. */
  readonly splitSize?: number
  /** The mean loss over a micro-batch. Needed for `step`. */
  readonly lossFn?: (output: Tensor, target: Tensor) => Tensor
  /** What backward begins with: `(loss) => scaler.scale(loss)` with a GradScaler. Default: the loss. */
  readonly scaled?: (loss: Tensor) => Tensor
  /** True if a device computes while its sends are in flight; default true. False is for comparison. */
  readonly overlapsSends?: boolean
}

/** What a schedule does with each micro-batch. */
export interface MicroBatchWork {
  forward(microBatch: number): Tensor
  /** Its part of the loss of the batch: the parts are added up. */
  loss(output: Tensor, microBatch: number): Tensor
  /** What backward begins with, where it is not the loss: `scaler.scale(loss)`. */
  scaled?(loss: Tensor): Tensor
}

/** Equal parts along the first axis, without copying. */
function cutBatch(x: Tensor, parts: number): Tensor[] {
  const length = x.shape[0] / parts
  return Array.from({ length: parts }, (_, i) => x.narrow(0, i * length, length))
}

/** The part of the batch's mean loss that one micro-batch has: by its samples that count, where the loss goes by `sampleCount`. */
function shareOfLoss(lossOf: () => Tensor, at: number, rows: number, batch: number): Tensor {
  const trace = activeTrace('schedule.step')
  return ofRows(
    at * rows,
    rows,
    (share) => {
      trace.isCountRead = false
      const loss = lossOf()
      return loss.mul(trace.isCountRead ? share : rows / batch)
    },
    batch,
  )
}

/** Micro-batches of a simulation, whose tasks are all held in memory. */
const maxSimulated = 2 ** 16

/** How a pipeline trains on micro-batches: called inside a compiled function, once. */
export abstract class Schedule {
  readonly pipe: Pipe
  readonly #options: ScheduleOptions
  protected abstract readonly order: TaskOrder

  constructor(pipe: Pipe, options: ScheduleOptions) {
    const { name } = new.target
    checkArgument(name, 'pipe', pipe, pipe instanceof Pipe, 'what await pipeline(…) returns')
    this.pipe = pipe
    this.#options = checkOptions(name, options, {
      microBatches: true,
      splitSize: true,
      lossFn: 'function',
      scaled: 'function',
      overlapsSends: 'flag',
    })
    const { microBatches, splitSize } = options
    if (
      (microBatches === undefined) === (splitSize === undefined) ||
      !isCount(microBatches ?? splitSize ?? 0)
    ) {
      throw new TabringError(
        'config.invalid',
        `${this.constructor.name}: expected microBatches or splitSize, a whole number above 0, got microBatches ${quoted(microBatches)} and splitSize ${quoted(splitSize)}. Pass one of them.`,
      )
    }
  }

  /**
   * Forward and backward of all micro-batches. Returns the mean loss over the batch, and the outputs as if the batch had been whole.
   *
   * Gradients are the mean over micro-batches, added in their order: the same bits for every schedule and any devices, and rounded otherwise
   * than those of the whole batch. Batch normalization sees micro-batches. Call `optimizer.step()` afterwards.
   * shape: x [n, ...], target [n, ...].
   * errors: `graph.misuse` without a lossFn, for a second schedule in one function, for micro-batches that do not divide the batch.
   */
  step(x: Tensor, target: Tensor): { loss: Tensor; output: Tensor } {
    mustBeTensor(`${this.constructor.name}.step`, { x, target })
    const { lossFn, scaled } = this.#options
    if (!lossFn) throw this.#misuse('step needs a lossFn. Pass one, or call forward')
    const { loss, outputs } = this.stepOf(x.shape[0], (microBatches) => {
      const inputs = cutBatch(x, microBatches)
      const targets = cutBatch(target, microBatches)
      const { module, devices } = this.pipe
      const rows = x.shape[0] / microBatches
      return {
        forward: (at) => module.forward(inputs[at].to(devices[0])) as Tensor,
        loss: (output, at) => shareOfLoss(() => lossFn(output, targets[at]), at, rows, x.shape[0]),
        ...(scaled && { scaled }),
      }
    })
    return byName('schedule.step', { loss, output: cat(outputs) })
  }

  /**
   * As `step`, of work that is given for each micro-batch: forward, which calls the module once, and its part of the loss.
   *
   * `batch`: rows of all. errors: as `step`.
   */
  stepOf(
    batch: number,
    workFor: (microBatches: number) => MicroBatchWork,
  ): { loss: Tensor; outputs: Tensor[] } {
    const where = `${this.constructor.name}.stepOf`
    checkNumber(where, 'batch', batch, isCount, 'a whole number above 0', true)
    checkArgument(where, 'workFor', workFor, typeof workFor === 'function', 'a function')
    const { marks, microBatches } = this.#begin(batch)
    const work = workFor(microBatches)
    const isWork = typeof work?.forward === 'function' && typeof work.loss === 'function'
    checkArgument(where, 'workFor()', work, isWork, '{ forward, loss }')
    const outputs: Tensor[] = []
    const losses: Tensor[] = []
    for (let at = 0; at < microBatches; at++) {
      const output = this.pipe.run(() => work.forward(at), at, marks)
      const loss = work.loss(output, at)
      const scaled = work.scaled?.(loss) ?? loss
      marks.end(nextNodeId())
      scaled.backward()
      outputs.push(output)
      losses.push(loss)
    }
    return { loss: losses.reduce((sum, loss) => sum.add(loss)), outputs }
  }

  /** Forward of all micro-batches: the outputs as if the batch had been whole. errors: as `step`. */
  forward(x: Tensor): Tensor {
    mustBeTensor(`${this.constructor.name}.forward`, { x })
    // A loss over all micro-batches begins its backward after the last forward.
    const { marks, microBatches } = this.#begin(x.shape[0], gpipeOrder)
    const { module, devices } = this.pipe
    const outputs = cutBatch(x, microBatches).map((input, at) =>
      this.pipe.run(() => module.forward(input.to(devices[0])) as Tensor, at, marks),
    )
    marks.end(nextNodeId())
    return cat(outputs)
  }

  /**
   * When each task would run on devices that take what `costs` says: arithmetic, not a measurement. `bubbleOf` gives the share of idle time.
   *
   * errors: `graph.misuse` for micro-batches that the schedule has no order for.
   */
  simulate(costs: TaskCosts, microBatches: number): TaskSpan[] {
    const where = `${this.constructor.name}.simulate`
    const isCosts = typeof costs?.forwardMs === 'function' && typeof costs.backwardMs === 'function'
    checkArgument(where, 'costs', costs, isCosts, '{ forwardMs, backwardMs, transferMs }')
    const isNumber = (count: number) => isCount(count) && count <= maxSimulated
    const range = `a whole number from 1 to ${maxSimulated}`
    checkNumber(where, 'microBatches', microBatches, isNumber, range, true)
    this.check(microBatches)
    return simulateSchedule(
      this.pipe.devices.map((_, device) => this.#orderOf(device, microBatches)),
      costs,
    )
  }

  #orderOf(device: number, microBatches: number, order = this.order): StageTask[] {
    const { devices, stages } = this.pipe
    const counts = { deviceCount: devices.length, stageCount: stages.length, microBatches }
    return order({ device, ...counts })
  }

  #begin(batch: number, taskOrder = this.order) {
    const trace = activeTrace(this.constructor.name)
    if (trace.stages) throw this.#misuse('the function has a schedule already. Call one, once')
    const { splitSize = batch / this.#options.microBatches! } = this.#options
    if (batch % splitSize !== 0 || !isCount(splitSize)) {
      const given = this.#options.microBatches
      const what = given ? `${given} micro-batches` : `micro-batches of ${splitSize} samples`
      throw this.#misuse(`${what} do not divide a batch of ${batch}. Use a number that does`)
    }
    const microBatches = batch / splitSize
    this.check(microBatches)
    const order: StageOrder = {
      overlapsSends: this.#options.overlapsSends ?? true,
      tasksOn: (device) => {
        const at = this.pipe.devices.findIndex((own) => sameDevice(own, device))
        return at < 0 ? [] : this.#orderOf(at, microBatches, taskOrder)
      },
    }
    const marks = new StageMarks(order, this.pipe.stages.map(nameOfStage))
    trace.stages = marks
    return { marks, microBatches }
  }

  /** errors: `graph.misuse` for numbers that the schedule has no order for. */
  protected abstract check(microBatches: number): void

  #misuse(text: string): TabringError {
    return new TabringError('graph.misuse', `${this.constructor.name}: ${text}.`)
  }
}

/** All forwards, then all backwards: simple, and every stage keeps the activations of all micro-batches. */
export class ScheduleGPipe extends Schedule {
  protected readonly order = gpipeOrder

  protected override check(): void {
    // It has an order for all.
  }
}

/** Each device has every n-th stage, so that it idles less, for more transfers. */
export class ScheduleInterleaved1F1B extends Schedule {
  protected readonly order = interleavedOrder

  /** Devices take turns in rounds of as many micro-batches. */
  protected override check(microBatches: number): void {
    const { stages, devices } = this.pipe
    const isWhole = stages.length % devices.length === 0 && microBatches % devices.length === 0
    if (isWhole || stages.length === devices.length) return
    throw new TabringError(
      'graph.misuse',
      `ScheduleInterleaved1F1B: ${stages.length} stages and ${microBatches} micro-batches on ${devices.length} devices. Both must be multiples of the number of devices.`,
    )
  }
}

/** Forward and backward in turn: a stage keeps the activations of as many micro-batches as there are stages from it on. */
export class Schedule1F1B extends Schedule {
  protected readonly order = interleavedOrder

  protected override check(): void {
    const { stages, devices } = this.pipe
    if (stages.length === devices.length) return
    throw new TabringError(
      'graph.misuse',
      `Schedule1F1B: ${stages.length} stages on ${devices.length} devices. Use ScheduleInterleaved1F1B, or a device for each stage.`,
    )
  }
}

countArguments(Schedule)
