import { useEffect, useMemo, useState } from 'preact/hooks'
import { givenData } from '../../src/trainer/settings/config.ts'
import { ApartLink } from '../../src/ui/demo/apart-link.tsx'
import { Choices } from '../../src/ui/demo/choices.tsx'
import { Expected } from '../../src/ui/demo/expected.tsx'
import { isFromScratch } from '../../src/ui/demo/from-scratch.ts'
import { useInView } from '../../src/ui/demo/use-in-view.ts'
import { useQuery } from '../../src/ui/demo/use-query.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { LiveField } from '../../src/ui/parts/live-field.tsx'
import { Term } from '../../src/ui/parts/term.tsx'
import { HiddenUnits } from './hidden-units.tsx'
import { type Field, type Marks, marksOf, marksOfAnswer } from './marks.ts'
import { meta } from './meta.ts'
import { type Activation, activations, hiddenLayers, modelOf, partsOf } from './networks.ts'
import { Plane, Thumbnail } from './plane.tsx'
import { useDrawnPoints } from './use-drawn-points.tsx'
import './view.css'

/** Samples of the boundary along each edge. */
const side = 64

/** What of the points the plane shows, in words. */
const pointsShown = { all: 'all', train: 'for training', test: 'held out', none: 'none' }

const nothing = { at: [], classes: [] }

/** The parts of the model that is set, or of the first one where the address names none that there is. */
const known = (model: string) => partsOf(Object.hasOwn(meta.models, model) ? model : 'tanh')

/** Points in the plane, and the boundary that this tab's model has learned so far. */
export function PlaygroundView(props: ViewProps) {
  const { config, run, canSet, canChange, set } = props
  const [isDrawing, setDrawing] = useState(false)
  const drawn = useDrawnPoints(props)
  // A run that begins ends the drawing.
  useEffect(() => setDrawing(false), [run?.id])
  const data = config?.data ?? run?.config?.data
  const preview = useMemo(() => marksOf(data), [data])
  const model = config?.model ?? run?.config?.model
  const parts = model === undefined ? null : partsOf(model)
  const [shown, setShown] = useState<keyof typeof pointsShown>('all')
  const isOfRun = run !== null && run.config !== null && data === run.config.data
  return (
    <div class="demo playground">
      <div class="shown">
        {isDrawing && canSet ? (
          <Plane
            field={null}
            marks={drawn.marks}
            label={`Plane to draw points on: ${drawn.count} so far.`}
            onPoint={drawn.put}
            onLift={drawn.keep}
            onUndo={drawn.undo}
          />
        ) : isOfRun ? (
          <Planes key={run.id} {...props} preview={preview ?? drawn.marks} shown={shown} />
        ) : (
          <Plane
            field={null}
            marks={preview ?? drawn.marks}
            label={`The points: ${meta.data[String(data)] ?? 'your own'}. Training has not started.`}
          />
        )}
        <p class="quiet">
          {(isOfRun ? run.step === 0 : !isDrawing) &&
            isFromScratch({ ...props, run: isOfRun ? run : null }) &&
            'Grey: untrained, no boundary yet. '}
          <b class="mark-0">●</b> class 0, <b class="mark-1">■</b> class 1; hollow:{' '}
          <Term word="held out" />; pale: used by another rank. The line: both classes equally
          likely.
        </p>
        {isOfRun && !isDrawing && <HiddenUnits key={run.id} {...props} />}
      </div>
      <div class="controls">
        {isOfRun && (
          <Choices
            label="Points shown"
            value={shown}
            choices={Object.entries(pointsShown).map(([value, words]) => ({
              value: value as keyof typeof pointsShown,
              words,
            }))}
            onChoose={setShown}
          />
        )}
        <LiveField
          id="setting-lr"
          label="Learning rate"
          value={String(config?.lr ?? '')}
          placeholder={model && String(meta.models[model]?.lr ?? '')}
          since={run?.changed.lr}
          isFixed={!canSet && !canChange}
          onChange={(text) => set('lr', text)}
        />
        <LiveField
          id="setting-maxStepsPerSec"
          label="Pace"
          unit="steps/s"
          value={String(config?.maxStepsPerSec || '')}
          placeholder="full speed"
          since={run?.changed.maxStepsPerSec}
          isFixed={!canSet && !canChange}
          onChange={(text) => set('maxStepsPerSec', text)}
        />
        {canChange && <p class="quiet">What follows needs a new start: stop the run first.</p>}
        <Choices
          label="Points"
          of="data"
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
            set('data', value === 'own' ? givenData : value)
            if (value === 'own') drawn.keep()
          }}
        />
        {isDrawing && canSet && (
          <div class="drawing">
            <Choices
              label="Draw on the plane with a finger, a pen or the mouse"
              value={String(drawn.brush)}
              choices={[
                { value: '0', words: '● class 0' },
                { value: '1', words: '■ class 1' },
              ]}
              onChoose={(value) => drawn.setBrush(Number(value))}
            />
            <div class="drawing-acts">
              <button type="button" disabled={drawn.count === 0} onClick={drawn.undo}>
                Undo
              </button>
              <button type="button" disabled={drawn.count === 0} onClick={drawn.clear}>
                Clear
              </button>
            </div>
            <p class="quiet" role="status">
              {drawn.lacks
                ? `${drawn.count} points; ${drawn.lacks} before Start.`
                : `${drawn.count} points. The next run trains on them; one in five is held out.`}
            </p>
            <p id="plane-keys" class="quiet">
              Keyboard: with the plane focused, arrow keys move the cursor, Space or Enter adds a
              point, Delete removes the last one.
            </p>
          </div>
        )}
        {drawn.failure !== null && <p role="alert">{drawn.failure}</p>}
        <Choices
          label="Hidden layers (units in each)"
          of="model"
          value={parts?.hidden}
          isFixed={!canSet}
          choices={hiddenLayers.map((value) => ({ value, words: value.replaceAll('-', ', ') }))}
          onChoose={(value) => set('model', (text) => modelOf(known(text).activation, value))}
        />
        <Choices
          label="Activation"
          value={parts?.activation}
          isFixed={!canSet}
          choices={(Object.keys(activations) as Activation[]).map((value) => ({
            value,
            words: activations[value],
          }))}
          onChoose={(value) => set('model', (text) => modelOf(value, known(text).hidden))}
        />
        <Choices
          label="Each rank draws from"
          of="partition"
          value={config?.partition ?? 'shuffled'}
          isFixed={!canSet}
          choices={[
            { value: 'shuffled', words: 'all points' },
            { value: 'own-slice', words: 'own sector' },
          ]}
          onChoose={(value) => set('partition', value)}
        />
        <Choices
          label="Gradient exchange"
          of="strategy"
          value={config?.strategy ?? 'ddp'}
          isFixed={!canSet}
          choices={[
            { value: 'ddp', words: 'on: averaged over all ranks' },
            { value: 'alone', words: 'off: each rank alone' },
          ]}
          onChoose={(value) => set('strategy', value)}
        />
        <p>
          Try it with two tabs or more: give each rank its own sector and switch the exchange off,
          or <ApartLink demo="playground" />. Each learns its sector, and the boundaries disagree.
          Then switch the exchange on: all learn one boundary, and it is right everywhere.
        </p>
        <Expected demo="playground" meta={meta} run={run} />
      </div>
    </div>
  )
}

interface LiveProps extends ViewProps {
  preview: Marks
  shown: keyof typeof pointsShown
}

/** The boundary of a run's model as it learns; of each model, where the ranks of this tab train different ones. */
function Planes(props: LiveProps) {
  const { apart, hues, queryOn } = props
  if (apart.length === 0) return <LivePlane {...props} />
  return (
    <div class="ranks">
      {apart.map((rank) => (
        <figure key={rank}>
          <figcaption class="hue-dot" style={{ '--hue': hues[rank] }}>
            rank {rank}
          </figcaption>
          <LivePlane {...props} query={queryOn(rank)} everyMs={250 * apart.length} />
        </figure>
      ))}
    </div>
  )
}

function LivePlane({ preview, shown, everyMs, ...props }: LiveProps & { everyMs?: number }) {
  const [place, isInView] = useInView<HTMLDivElement>()
  const isIdle = !isInView
  const boundary = useQuery(props, 'boundary', { side }, { everyMs, isIdle })
  const points = useQuery(props, 'points', null, { step: 'once', isIdle })
  const { answer } = boundary
  const lit = props.apart.length > 0 ? null : (props.part?.points as Uint32Array | undefined)
  const field = useMemo(() => answer && (answer as unknown as Field), [answer])
  const marks = useMemo(() => {
    const { train, test, own } = points.answer ? marksOfAnswer(points.answer) : preview
    const only = (split: 'train' | 'test') => shown === 'all' || shown === split
    return {
      train: only('train') ? train : nothing,
      test: only('test') ? test : null,
      own,
      lit: only('train') ? lit : null,
    }
  }, [points.answer, preview, shown, lit])
  const failure = boundary.failure ?? points.failure
  const share = useMemo(() => field && shareOfClass1(field), [field])
  return (
    <div ref={place}>
      <Plane
        field={field}
        marks={marks}
        label={
          share === null
            ? 'The points. Training has not started.'
            : `The points, and the model's boundary: class 1 on ${Math.round(100 * share)} % of the plane, after step ${answer!.step}.`
        }
      />
      {failure !== null && <p role="alert">{failure}</p>}
    </div>
  )
}

function shareOfClass1({ probabilities }: Field): number {
  let count = 0
  for (const probability of probabilities) if (probability > 0.5) count++
  return count / probabilities.length
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
