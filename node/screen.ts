import cliProgress from 'cli-progress'
import type { Progress } from '../src/distributed/launcher/progress.ts'
import type { Output } from './output.ts'
import { Rate } from './rate.ts'
import type { StreamName } from './tabs.ts'

/** Time between two plain lines about progress. */
const lineEveryMs = 5000
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

/** `epoch 2/3 | loss 0.1234 | 512 samples/s`, as far as the rank tells. */
function tailOf({ epoch, epochs, loss, samples }: ShownStep, stepsPerSec: number): string {
  const parts: string[] = []
  if (epoch !== undefined) {
    parts.push(`epoch ${epoch + 1}${epochs === undefined ? '' : `/${epochs}`}`)
  }
  if (loss !== undefined) parts.push(`loss ${loss === null ? 'not a number' : loss.toFixed(4)}`)
  if (samples !== undefined && !Number.isNaN(stepsPerSec)) {
    parts.push(`${whole.format(samples * stepsPerSec)} samples/s`)
  }
  return parts.join(' | ')
}

/** A step as it is shown. `loss`: null stands for what JSON lacks. */
export type ShownStep = Omit<Progress, 'loss'> & { readonly loss?: number | null }

/** The terminal of a launcher: its lines and those of its ranks, and one bar below them. */
export class Screen {
  #rate = new Rate()
  #phase = ''
  #bars: cliProgress.MultiBar | null = null
  #bar: cliProgress.SingleBar | null = null
  #lastStep = 0
  #lastLineMs = Number.NEGATIVE_INFINITY

  constructor(
    /** Of the command: its lines begin with it. */
    private readonly name: string,
    private readonly output: Output,
    private readonly error: Output,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Takes a line of the command, for standard error. */
  note(text: string): void {
    this.print('stderr', text.replace(/^/gm, `${this.name}: `))
  }

  /** Takes what the ranks do from now on. */
  phase(name: string): void {
    this.#phase = `${name} `
    if (this.#bar) this.#bar.update({ phase: this.#phase })
    else this.print('stdout', `${name}…`)
  }

  /** What a rank says; each line gets its number in front. */
  say(rank: number, stream: StreamName, text: string): void {
    this.print(stream, text.replace(/^/gm, `[${rank}]: `))
  }

  /** A rank's progress; give it those of one rank. */
  progress(progress: ShownStep): void {
    const { step, totalSteps } = progress
    // A rank that was started again begins at step 0 or at its checkpoint.
    if (step < this.#lastStep) this.#rate = new Rate()
    this.#lastStep = step
    const nowMs = this.now()
    this.#rate.step(nowMs)
    const tail = tailOf(progress, this.#rate.perSec)
    if (this.output.isTTY) {
      this.#draw(step, totalSteps, tail)
      return
    }
    if (nowMs - this.#lastLineMs < lineEveryMs && step !== totalSteps) return
    this.#lastLineMs = nowMs
    this.output.write(`step ${step}/${totalSteps}${tail && `  ${tail.replaceAll(' | ', '  ')}`}\n`)
  }

  /** Leaves the terminal clean. */
  stop(): void {
    this.#bars?.stop()
    this.#bars = null
    this.#bar = null
  }

  #draw(step: number, totalSteps: number, tail: string): void {
    this.#bars ??= new cliProgress.MultiBar(
      {
        format: '{phase}[{bar}] {value}/{total} | {tail} | eta {eta_formatted}',
        hideCursor: true,
        stream: this.output as NodeJS.WritableStream,
        etaBuffer: 50,
        fps: 10,
      },
      cliProgress.Presets.shades_classic,
    )
    const payload = { phase: this.#phase, tail }
    this.#bar ??= this.#bars.create(totalSteps, 0, payload)
    this.#bar.setTotal(totalSteps)
    this.#bar.update(step, payload)
  }

  /** Prints a line, above the bar. */
  print(stream: StreamName, text: string): void {
    // The bar is the terminal's last line, whichever stream a line above it comes from.
    if (this.#bars) this.#bars.log(`${text}\n`)
    else (stream === 'stdout' ? this.output : this.error).write(`${text}\n`)
  }
}
