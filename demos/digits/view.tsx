import { useMemo, useState } from 'preact/hooks'
import { Expected } from '../../src/ui/demo/expected.tsx'
import { useQuery } from '../../src/ui/demo/use-query.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { useLoaded } from '../../src/ui/parts/use-loaded.ts'
import { Examples } from './examples.tsx'
import { inkOn, percent, Tile } from './images.tsx'
import { meta } from './meta.ts'
import { OwnFiles, useOwnFiles } from './own-files.tsx'
import { normalized, Pad, type Stroke } from './pad.tsx'
import './view.css'

/** A pad to draw a digit on and what the model takes it for; the model's first layer; what it gets wrong. */
export function DigitsView(props: ViewProps) {
  const { run } = props
  /** Null until something has been drawn: so long the model guesses the sample. */
  const [drawn, setDrawn] = useState<readonly Stroke[] | null>(null)
  const pixels = useMemo(() => (drawn?.length === 0 ? null : normalized(drawn ?? sample)), [drawn])
  const hasModel = run !== null && run.step > 0
  const own = useOwnFiles(props)
  const { part: learned } = useLoaded(
    'what it has learned',
    () => import('./learned.tsx'),
    hasModel,
  )
  return (
    // Dropping has its twin for the keyboard: the file field.
    // biome-ignore lint/a11y/noStaticElementInteractions: a place to drop on, not a control
    <div
      class="demo digits"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        // Otherwise the browser leaves this page, and the room, for the file.
        event.preventDefault()
        own.take(event.dataTransfer?.files)
      }}
    >
      {learned && <learned.WhoseModel run={run} />}
      {learned && props.part && <learned.PartImages part={props.part} />}
      <div class="drawn">
        <div class="shown">
          <Pad strokes={drawn ?? nothing} sample={drawn ? nothing : sample} onChange={setDrawn} />
          <div class="seen">
            <Tile
              values={pixels ?? blank}
              height={28}
              width={28}
              scale={ink}
              label="The digit as the model sees it"
            />
            <p class="quiet">
              What the model sees: scaled to 20 × 20 pixels and centred by mass, like MNIST’s
              digits.
            </p>
            <button type="button" disabled={!drawn?.length} onClick={() => setDrawn(nothing)}>
              Clear
            </button>
          </div>
        </div>
        {pixels && hasModel ? (
          <Probabilities key={run.id} {...props} pixels={pixels} />
        ) : (
          <Bars
            values={null}
            note={
              hasModel
                ? 'The bars show how likely the model finds each digit.'
                : 'Once training starts, the bars show how likely the model finds each digit.'
            }
          />
        )}
      </div>
      <OwnFiles {...props} own={own} />
      <Expected demo="digits" meta={meta} run={run} />
      {/* Last, so that nothing moves when it comes. */}
      {!hasModel && props.config?.data === 'digits' && <Examples />}
      {hasModel && learned && <learned.Learned key={run.id} {...props} />}
    </div>
  )
}

const nothing: readonly Stroke[] = []

/** A 3, of x and y by turns. */
const sample: readonly Stroke[] = [
  [
    ...[0.3, 0.22, 0.4, 0.16, 0.5, 0.15, 0.62, 0.19, 0.68, 0.28, 0.63, 0.4, 0.5, 0.47],
    ...[0.64, 0.53, 0.7, 0.65, 0.66, 0.78, 0.52, 0.84, 0.4, 0.83, 0.28, 0.76],
  ],
]

const blank = new Float32Array(28 * 28)
const ink = inkOn(1)

function Probabilities({ pixels, ...props }: ViewProps & { pixels: readonly number[] }) {
  const { answer, failure } = useQuery(props, 'classify', pixels)
  return (
    <Bars
      values={answer && (answer.probabilities as Float32Array)}
      note={failure ?? (answer ? `By the model after step ${answer.step}.` : 'Asking the model.')}
    />
  )
}

function Bars({ values, note }: { values: Float32Array | null; note: string }) {
  const best = values ? values.indexOf(Math.max(...values)) : -1
  return (
    <div class="guess">
      <ul class="bars" aria-label="Probability of each digit">
        {Array.from({ length: 10 }, (_, digit) => (
          <li key={digit} data-own={digit === best}>
            <span class="bar-label">{digit}</span>
            <span class="bar-track">
              <span style={{ width: `${100 * (values?.[digit] ?? 0)}%` }} />
            </span>
            <span class="bar-value">{values ? percent(values[digit]) : '–'}</span>
          </li>
        ))}
      </ul>
      <p class="quiet">{note}</p>
    </div>
  )
}
