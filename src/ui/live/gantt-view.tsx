import type { ComponentChildren } from 'preact'
import { useMemo, useRef, useState } from 'preact/hooks'
import type { SpanKind } from '../../trainer/watch/step-sample.ts'
import { formatMs } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import type { Acts } from '../state/acts.ts'
import type { Run } from '../state/run.ts'
import { useFewRanks } from './few-ranks.tsx'
import { type Lane, type LaneSpan, lanesOf, type StepLanes, sumsOf } from './lanes.ts'
import { bubbleWords, MicroBatchNumbers, runStages } from './micro-batches.tsx'
import { rankWork } from './rank-work.ts'
import { StepSlider } from './step-slider.tsx'
import { samplesTrace } from './trace-file.ts'
import { useHold } from './use-hold.ts'

interface KindWords {
  readonly label: string
  readonly title: string
}

/** In the order of the legend. `compute` stands in for forward and backward where the device does not part them. */
const kinds: readonly (readonly [SpanKind, KindWords])[] = [
  ['data', { label: 'data', title: 'Filling the batch' }],
  ['forward', { label: 'forward', title: 'From the batch to the loss' }],
  ['backward', { label: 'backward', title: 'A part of backward, up to a bucket of gradients' }],
  ['compute', { label: 'forward and backward', title: 'This device cannot time them separately' }],
  ['readback', { label: 'readback', title: "Copying a bucket's gradients from the GPU" }],
  ['wait', { label: 'waiting', title: 'For ranks that have not started this exchange' }],
  [
    'reduceScatter',
    { label: 'reduce-scatter', title: 'Summing gradients over the ranks, a part for each' },
  ],
  ['allGather', { label: 'all-gather', title: 'Parameters from all ranks to all ranks' }],
  ['exchange', { label: 'exchange', title: 'Another exchange between ranks' }],
  ['optimizer', { label: 'optimizer', title: 'From summed gradients to new parameters' }],
]
const words = new Map(kinds)

const deviceHeight = 12
const ringHeight = 7
const gap = 1.5
const laneGap = 7

const heightOf = ({ rows }: Lane) => deviceHeight + (rows - 1) * (ringHeight + gap)

interface GanttViewProps {
  run: Run | null
  acts: Acts
  /** By rank: the colour of its person. */
  hues: readonly string[]
}

/** One step by rank, sampled about every second: what overlaps what, and who is late. It stands still while somebody looks at it. */
export function GanttView({ run, acts, hues }: GanttViewProps) {
  return run && run.sampledSteps.length > 0 ? (
    <SampledStep run={run} acts={acts} hues={hues} />
  ) : (
    <Panel id="gantt" title="One step, by rank">
      <p class="quiet">
        Forward, backward, readback, exchange and optimizer of every rank on one clock, once
        training starts.
      </p>
    </Panel>
  )
}

function SampledStep({ run, acts, hues }: GanttViewProps & { run: Run }) {
  const { shown, choose, holds } = useHold(run)
  const { sets, at, isHeld } = shown
  // Those that wait least are those that the others wait for.
  const { shown: ranks, more } = useFewRanks(
    rankWork(run).map(({ waitShare }) => -waitShare),
    run.rank,
    'slowest',
  )
  // The same picture as before takes no time to draw again.
  return useMemo(
    () => (
      <Strip
        step={lanesOf({ ...run, sampledSteps: sets.slice(0, at + 1) })!}
        own={run.rank}
        hues={hues}
        stages={runStages(run)}
        parts={run.config?.parallel === 'fsdp' ? 'exchange' : 'bucket'}
        acts={acts}
        holds={holds}
        ranks={ranks}
        more={more}
        slider={<StepSlider shown={shown} own={run.rank} onChoose={choose} />}
      />
    ),
    [sets[at], sets.length, isHeld, ranks.join(), hues.join()],
  )
}

interface StripProps {
  step: StepLanes
  own: number
  hues: readonly string[]
  /** Of each pipeline; undefined without pipelines. */
  stages: number | undefined
  /** What the numbers of the spans count. */
  parts: string
  acts: Acts
  /** Handlers of what keeps the step in sight. */
  holds: object
  slider: ComponentChildren
  /** Whose lanes are drawn. */
  ranks: readonly number[]
  /** What shows the others. */
  more: ComponentChildren
}

function Strip(props: StripProps) {
  const { step: whole, own, hues, stages, parts, acts, holds, slider, ranks, more } = props
  const lanes = whole.lanes.filter(({ rank }) => ranks.includes(rank))
  const step = { ...whole, lanes }
  const { lengthMs } = step
  const [pointed, setPointed] = useState({ of: step.step, text: '' })
  // What was pointed at is of the step that was shown then.
  const spanText = pointed.of === step.step ? pointed.text : ''
  const holder = useRef<HTMLDivElement>(null)
  const tops: number[] = []
  let height = 0
  for (const lane of lanes) {
    tops.push(height)
    height += heightOf(lane) + laneGap
  }
  const shownKinds = kinds.filter(([kind]) =>
    lanes.some(({ spans }) => spans.some((span) => span.kind === kind)),
  )
  const point = (event: PointerEvent) => {
    const box = holder.current!.getBoundingClientRect()
    const ms = ((event.clientX - box.left) / box.width) * lengthMs
    const y = ((event.clientY - box.top) / box.height) * height
    const index = tops.findLastIndex((top) => top <= y)
    const lane = lanes[index]
    const row = lane && rowAt(y - tops[index])
    const near = (0.004 * lengthMs) / 2
    const span = lane?.spans.find(
      (one) => one.row === row && one.fromMs - near <= ms && ms <= one.toMs + near,
    )
    setPointed({
      of: step.step,
      text: lane && span ? spanWords(lane, span, stages ? 'micro-batch' : parts) : '',
    })
  }
  const rough = lanes.filter(({ isRough }) => isRough)
  return (
    <Panel
      id="gantt"
      title="One step, by rank"
      aside={spanText || `step ${step.step}, ${formatMs(lengthMs)} in all`}
    >
      <div {...holds}>
        <ul class="legend gantt-legend">
          {shownKinds.map(([kind, { label, title }]) => (
            <li key={kind} data-kind={kind} title={title}>
              {label}
            </li>
          ))}
        </ul>
        <div class="gantt">
          <ul class="gantt-ranks" aria-hidden="true">
            {lanes.map((lane) => (
              <li
                key={lane.rank}
                data-own={lane.rank === own}
                style={{
                  color: hues[lane.rank],
                  height: `${heightOf(lane)}px`,
                  marginBottom: `${laneGap}px`,
                }}
              >
                {lane.rank}
                {lane.isRough && '~'}
              </li>
            ))}
          </ul>
          <div
            class="gantt-strip"
            ref={holder}
            onPointerMove={point}
            onPointerLeave={() => setPointed({ of: step.step, text: '' })}
          >
            <svg
              viewBox={`0 0 1000 ${height}`}
              preserveAspectRatio="none"
              style={{ height: `${height}px` }}
              role="img"
              aria-label={stripWords(step)}
            >
              <defs>
                <Hatching />
              </defs>
              {lanes.map((lane, i) => (
                <LaneView key={lane.rank} lane={lane} top={tops[i]} lengthMs={lengthMs} />
              ))}
            </svg>
            {stages &&
              lanes.map((lane, i) => (
                <MicroBatchNumbers
                  key={lane.rank}
                  lane={lane}
                  lengthMs={lengthMs}
                  top={tops[i]}
                  height={deviceHeight}
                />
              ))}
            <Ticks lengthMs={lengthMs} />
          </div>
        </div>
        {stages && <p class="quiet">{bubbleWords(whole.lanes, stages)}</p>}
        {more}
        {slider}
        {rough.length > 0 && (
          <p class="quiet">
            ~{' '}
            {rough.length === 1
              ? `Rank ${rough[0].rank} is`
              : `Ranks ${rough.map(({ rank }) => rank).join(', ')} are`}{' '}
            on another machine's clock and aligned only roughly: {roughWords(rough)}.
          </p>
        )}
        <details>
          <summary>As a table</summary>
          <Table step={whole} shownKinds={shownKinds} />
        </details>
      </div>
      <p class="acts">
        <button type="button" class="small" onClick={() => acts.saveTimeline(samplesTrace)}>
          Timeline for Perfetto
        </button>
        <span class="quiet">The sampled steps of all ranks, as a Chrome trace.</span>
      </p>
    </Panel>
  )
}

const roughWords = (rough: readonly Lane[]): string => {
  const worst = Math.max(...rough.map(({ clock }) => clock.errorMs))
  return Number.isFinite(worst) ? `within ± ${formatMs(worst)}` : 'the error is unknown'
}

/** One path a kind and rank: few elements, however many spans. */
function LaneView({ lane, top, lengthMs }: { lane: Lane; top: number; lengthMs: number }) {
  const paths = new Map<SpanKind, string>()
  const x = (ms: number) => ((1000 * ms) / lengthMs).toFixed(1)
  for (const { kind, row, fromMs, toMs } of lane.spans) {
    const y = top + (row === 0 ? 0 : deviceHeight + gap + (row - 1) * (ringHeight + gap))
    const h = row === 0 ? deviceHeight : ringHeight
    // At least a pixel or so, so that nothing is lost.
    const width = Math.max(1.2, (1000 * (toMs - fromMs)) / lengthMs).toFixed(1)
    paths.set(kind, `${paths.get(kind) ?? ''}M${x(fromMs)} ${y}h${width}v${h}h-${width}z`)
  }
  return (
    <g>
      {[...paths].map(([kind, d]) => (
        <path key={kind} data-kind={kind} d={d} />
      ))}
    </g>
  )
}

/** Patterns for what differs by more than its colour. */
function Hatching(): ComponentChildren {
  return (
    <>
      <pattern id="gantt-wait" width="5" height="5" patternUnits="userSpaceOnUse">
        <path d="M0 5L5 0" class="hatch" />
      </pattern>
      <pattern id="gantt-gather" width="4" height="4" patternUnits="userSpaceOnUse">
        <rect width="4" height="4" class="gather-ground" />
        <path d="M2 0V4" class="gather-line" />
      </pattern>
    </>
  )
}

function Ticks({ lengthMs }: { lengthMs: number }) {
  const step = niceStep(lengthMs / 4)
  const ticks = Array.from({ length: Math.floor(lengthMs / step) + 1 }, (_, i) => i * step)
  return (
    <div class="gantt-ticks" aria-hidden="true">
      {ticks
        .filter((ms) => ms <= 0.93 * lengthMs)
        .map((ms) => (
          <span key={ms} style={{ left: `${(100 * ms) / lengthMs}%` }}>
            {Number(ms.toPrecision(3))}
            {ms === 0 ? ' ms' : ''}
          </span>
        ))}
    </div>
  )
}

/** 1, 2 or 5 times a power of ten, at least `min`. */
function niceStep(min: number): number {
  const power = 10 ** Math.floor(Math.log10(min))
  return [1, 2, 5, 10].map((first) => first * power).find((step) => step >= min) ?? min
}

function rowAt(y: number): number {
  return y < deviceHeight + gap / 2
    ? 0
    : 1 + Math.floor((y - deviceHeight - gap / 2) / (ringHeight + gap))
}

function spanWords({ rank }: Lane, span: LaneSpan, parts: string): string {
  const { kind, part, fromMs, toMs } = span
  const which = part < 0 ? '' : ` of ${parts} ${part}`
  return `rank ${rank}: ${words.get(kind)?.label}${which}, ${formatMs(toMs - fromMs)}`
}

function stripWords({ step, lanes, lengthMs }: StepLanes): string {
  const each = lanes.map(({ rank, spans }) => {
    const waited = sumsOf(spans).get('wait') ?? 0
    return `rank ${rank} ends after ${formatMs(Math.max(0, ...spans.map(({ toMs }) => toMs)))}${waited > 0 ? `, ${formatMs(waited)} of it waiting` : ''}`
  })
  return `Step ${step}, ${formatMs(lengthMs)} in all: ${each.join('; ')}`
}

interface TableProps {
  step: StepLanes
  shownKinds: readonly (readonly [SpanKind, KindWords])[]
}

function Table({ step, shownKinds }: TableProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls sideways on phones, by the keyboard too
    <section class="scroll" tabIndex={0} aria-label="One step by rank, in numbers">
      <table class="runs">
        <thead>
          <tr>
            <th scope="col">Rank</th>
            {shownKinds.map(([kind, { label }]) => (
              <th key={kind} scope="col" class="number">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {step.lanes.map(({ rank, spans }) => {
            const sums = sumsOf(spans)
            return (
              <tr key={rank}>
                <th scope="row">{rank}</th>
                {shownKinds.map(([kind]) => (
                  <td key={kind} class="number">
                    {formatMs(sums.get(kind) ?? 0)}
                  </td>
                ))}
              </tr>
            )
          })}
        </tbody>
      </table>
    </section>
  )
}
