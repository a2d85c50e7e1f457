import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { givenData } from '../../src/train/config.ts'
import { Choices } from '../../src/ui/demo/choices.tsx'
import { Expected } from '../../src/ui/demo/expected.tsx'
import { useLook } from '../../src/ui/demo/use-look.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { meta } from './meta.ts'
import { type Field, type Marks, Plane, Thumbnail } from './plane.tsx'
import { drawSplits, fewest } from './points.ts'
import './view.css'

/** Samples of the boundary along each edge. */
const side = 64

/** Points in the plane, and the boundary that this tab's model has learned so far. */
export function PlaygroundView(props: ViewProps) {
  const { config, run, canSet, set, give } = props
  const [isDrawing, setDrawing] = useState(false)
  const drawn = useDrawnPoints(give)
  // A run that begins ends the drawing.
  useEffect(() => setDrawing(false), [run?.id])
  const data = config?.data ?? run?.config?.data
  const preview = useMemo(() => marksOf(data), [data])
  const isOfRun = run !== null && run.config !== null && data === run.config.data
  return (
    <div class="demo playground">
      <div class="shown">
        {isDrawing && canSet ? (
          <Plane
            field={null}
            marks={drawn.marks}
            label={`${drawn.count} points that you drew.`}
            onPoint={drawn.put}
            onLift={drawn.keep}
          />
        ) : isOfRun ? (
          <LivePlane key={run.id} {...props} preview={preview ?? drawn.marks} />
        ) : (
          <Plane
            field={null}
            marks={preview ?? drawn.marks}
            label={`The points: ${meta.data[String(data)] ?? 'given'}. Nothing is trained on them yet.`}
          />
        )}
        <p class="quiet">
          <b class="mark-0">●</b> class 0, <b class="mark-1">■</b> class 1; hollow: held out; pale:
          drawn from by another tab. The line: both classes equally likely.
        </p>
      </div>
      <div class="controls">
        <Choices
          label="Points"
          value={isDrawing ? 'own' : data === givenData ? 'own' : data}
          isFixed={!canSet}
          choices={[
            ...Object.keys(meta.data).map((shape) => ({
              value: shape,
              words: <Shape name={shape} />,
            })),
            { value: 'own', words: 'Draw your own' },
          ]}
          onChoose={(value) => {
            setDrawing(value === 'own')
            if (value !== 'own') set('data', value)
            else drawn.keep()
          }}
        />
        {isDrawing && canSet && (
          <div class="drawing">
            <Choices
              label="Draw on the plane, with a finger, a pen or the mouse"
              value={String(drawn.brush)}
              choices={[
                { value: '0', words: '● class 0' },
                { value: '1', words: '■ class 1' },
              ]}
              onChoose={(value) => drawn.setBrush(Number(value))}
            />
            <button
              type="button"
              onClick={() => {
                drawn.clear()
                set('data', Object.keys(meta.data)[0])
              }}
            >
              Clear
            </button>
            <p class="quiet" role="status">
              {drawn.count < fewest
                ? `${drawn.count} points; ${fewest - drawn.count} more are needed.`
                : `${drawn.count} points. The next run trains on them; one in five is held out.`}
            </p>
          </div>
        )}
        <Choices
          label="Each tab draws from"
          value={config?.partition ?? 'shuffled'}
          isFixed={!canSet}
          choices={[
            { value: 'shuffled', words: 'all points' },
            { value: 'own-slice', words: 'a sector of its own' },
          ]}
          onChoose={(value) => set('partition', value)}
        />
        <Choices
          label="Exchange of gradients"
          value={config?.strategy ?? 'ddp'}
          isFixed={!canSet}
          choices={[
            { value: 'ddp', words: 'on: averaged over all tabs' },
            { value: 'alone', words: 'off: each tab alone' },
          ]}
          onChoose={(value) => set('strategy', value)}
        />
        <p>
          Try this with two tabs or more: a sector of its own, exchange off. Each tab learns its
          sector, and their boundaries disagree. Then switch the exchange on: all tabs have one
          boundary, and it is right everywhere.
        </p>
        <Expected demo="playground" run={run} />
      </div>
    </div>
  )
}

/** What the model of a run says, as it learns. */
function LivePlane({ preview, ...props }: ViewProps & { preview: Marks }) {
  const { run } = props
  const boundary = useLook(props, 'boundary', { side })
  const points = useLook(props, 'points', null, { step: 'once' })
  const { answer } = boundary
  const field = useMemo(() => answer && (answer as unknown as Field), [answer])
  const marks = useMemo(
    () => (points.answer ? marksOfAnswer(points.answer) : preview),
    [points.answer, preview],
  )
  const failure = boundary.failure ?? points.failure
  const share = field && field.probabilities.filter((p) => p > 0.5).length / field.side ** 2
  return (
    <>
      <Plane
        field={field}
        marks={marks}
        label={
          share === null
            ? 'The points. The model has not begun to learn.'
            : `The points, and the model's boundary: class 1 on ${Math.round(100 * share)} % of the plane, after step ${run!.step}.`
        }
      />
      {failure !== null && <p role="alert">{failure}</p>}
    </>
  )
}

function Shape({ name }: { name: string }) {
  const marks = useMemo(() => ({ ...marksOf(name)!, test: null }), [name])
  return (
    <span class="shape">
      <Thumbnail marks={marks} />
      {meta.data[name]}
    </span>
  )
}

/** Null for points that are no built-in shape. */
function marksOf(data: string | undefined): Marks | null {
  return data !== undefined && Object.hasOwn(meta.data, data)
    ? { ...drawSplits(data), own: null }
    : null
}

function marksOfAnswer(answer: Readonly<Record<string, unknown>>): Marks {
  const { train, trainClasses, test, testClasses, start, end } = answer as unknown as Record<
    'train' | 'test',
    Float32Array
  > &
    Record<'trainClasses' | 'testClasses', Int32Array> &
    Record<'start' | 'end', number>
  return {
    train: { at: train, classes: trainClasses },
    test: { at: test, classes: testClasses },
    own: { start, end },
  }
}

/** Numbers of a point: x, y and class. */
const fields = 3
/** A stroke puts points this far apart. */
const apart = 0.06
const most = meta.given!.mostBytes / (4 * fields)

/** The points that a person draws; `keep` gives them to the next run once there are enough. */
function useDrawnPoints(give: ViewProps['give']) {
  const [points, setPoints] = useState<readonly number[]>([])
  const [brush, setBrush] = useState(0)
  // Pointers move more often than the page is drawn.
  const newest = useRef(points)
  const change = (next: readonly number[]) => {
    newest.current = next
    setPoints(next)
  }
  const marks = useMemo((): Marks => {
    const count = points.length / fields
    return {
      train: {
        at: Array.from({ length: count }, (_, i) =>
          points.slice(fields * i, fields * i + 2),
        ).flat(),
        classes: Array.from({ length: count }, (_, i) => points[fields * i + 2]),
      },
      test: null,
      own: null,
    }
  }, [points])
  return {
    marks,
    brush,
    setBrush,
    count: points.length / fields,
    put(x: number, y: number, isFirst: boolean) {
      const { current } = newest
      const [lastX, lastY] = current.slice(-fields)
      const isFar = isFirst || Math.hypot(x - lastX, y - lastY) >= apart
      if (isFar && current.length / fields < most) change([...current, x, y, brush])
    },
    keep() {
      const { current } = newest
      if (current.length / fields >= fewest) give(new Uint8Array(Float32Array.from(current).buffer))
    },
    clear: () => change([]),
  }
}
