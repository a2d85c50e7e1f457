import { useMemo, useState } from 'preact/hooks'
import { givenData } from '../../src/trainer/settings/config.ts'
import { ApartLink } from '../../src/ui/demo/apart-link.tsx'
import { Choices } from '../../src/ui/demo/choices.tsx'
import { Expected } from '../../src/ui/demo/expected.tsx'
import { isFromScratch } from '../../src/ui/demo/from-scratch.ts'
import { keptInTab } from '../../src/ui/demo/kept.ts'
import { useInView } from '../../src/ui/demo/use-in-view.ts'
import { useQuery } from '../../src/ui/demo/use-query.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { last } from '../../src/ui/parts/series.ts'
import { Term } from '../../src/ui/parts/term.tsx'
import { decibelsOf, errorGain, errorPicture, meanSquaredError } from './closeness.ts'
import { Framed } from './framed.tsx'
import { meta } from './meta.ts'
import { OwnPicture, useOwnPicture } from './own-picture.tsx'
import { type Picture, trainingPixels, writePicture } from './pixels.ts'
import { drawScene } from './scene.ts'
import './view.css'

/** What a person gave on this tab, and the run that had been the last one then. */
interface Given {
  readonly picture: Picture
  readonly name: string
  readonly afterRun: string | undefined
}

const kept = keptInTab<Given | null>(null)

type Also = 'nothing' | 'error' | 'finer'

/** The original, and beside it what this tab's network has learned of it. */
export function PictureView(props: ViewProps) {
  const { config, run, canSet, set, give } = props
  const [given, setGiven] = useState(kept.value)
  const [also, setAlso] = useState<Also>('nothing')
  const own = useOwnPicture({
    canSet,
    isGiven: config?.data === givenData,
    onTake(picture, name) {
      kept.value = { picture, name, afterRun: run?.id }
      setGiven(kept.value)
      give(writePicture(picture), null, trainingPixels(picture))
    },
  })
  const data = config?.data ?? run?.config?.data
  const next = useMemo(
    () => (data === givenData ? (given?.picture ?? null) : drawScene()),
    [data, given],
  )
  const isNewer = canSet && data === givenData && given !== null && given.afterRun === run?.id
  const isOfRun = run !== null && run.config !== null && data === run.config.data && !isNewer
  return (
    // Dropping has its twin for the keyboard: the file field.
    // biome-ignore lint/a11y/noStaticElementInteractions: a place to drop on, not a control
    <div
      class="demo picture"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        // Otherwise the browser leaves this page, and the room, for the file.
        event.preventDefault()
        own.take(event.dataTransfer?.files[0])
      }}
    >
      {isOfRun ? (
        <Learning key={run.id} {...props} next={next} also={also} />
      ) : (
        <div class="pictures">
          <Framed
            picture={next}
            shape={next ?? square}
            title="Original"
            note={next && sizeOf(next)}
            instead={
              canSet
                ? 'Choose a picture, or drop one here.'
                : 'The host’s own picture: it arrives with the run.'
            }
          />
          <Framed
            {...unanswered(isFromScratch({ ...props, run: null }))}
            shape={next ?? square}
            title="Learned"
          />
        </div>
      )}
      <div class="controls">
        <Choices
          label="Picture"
          value={data}
          isFixed={!canSet}
          choices={[
            ...Object.entries(meta.data).map(([value, words]) => ({ value, words })),
            ...(given ? [{ value: givenData, words: given.name }] : []),
          ]}
          onChoose={(value) => set('data', value)}
        />
        <OwnPicture own={own} canSet={canSet} />
        <Choices
          label="Also show"
          value={also}
          choices={[
            { value: 'nothing', words: 'nothing' },
            { value: 'error', words: 'the error' },
            { value: 'finer', words: 'twice as fine' },
          ]}
          onChoose={setAlso}
        />
        <Choices
          label="Network input"
          value={config?.model ?? run?.config?.model}
          isFixed={!canSet}
          choices={[
            { value: 'waves', words: '64 waves of the place' },
            { value: 'place', words: 'x and y alone' },
          ]}
          onChoose={(value) => set('model', value)}
        />
        <Choices
          label="Each rank draws from"
          value={config?.partition ?? 'shuffled'}
          isFixed={!canSet}
          choices={[
            { value: 'shuffled', words: 'all pixels' },
            { value: 'own-slice', words: 'own band' },
          ]}
          onChoose={(value) => set('partition', value)}
        />
        <Choices
          label="Gradient exchange"
          value={config?.strategy ?? 'ddp'}
          isFixed={!canSet}
          choices={[
            { value: 'ddp', words: 'on: averaged over all ranks' },
            { value: 'alone', words: 'off: each rank alone' },
          ]}
          onChoose={(value) => set('strategy', value)}
        />
        <p>
          Try it with two tabs or more: give each rank its own band and switch the exchange off, or{' '}
          <ApartLink demo="picture" />. Each learns its band and makes up the rest. Then switch the
          exchange on: every rank adds its pixels, and all have the whole picture.
        </p>
        <Expected demo="picture" meta={meta} run={run} />
      </div>
    </div>
  )
}

const square = { width: 1, height: 1 }

/** What a network gives with its first parameters, to within a tenth (106 to 147 over seeds 0 to 2): a sigmoid of next to nothing. */
const grey: Picture = { width: 1, height: 1, rgb: Uint8Array.of(128, 128, 128) }

/** What is in a network's frame before it has answered: an untrained one needs no answer. */
const unanswered = (isUntrained: boolean) =>
  isUntrained
    ? { picture: grey, note: 'untrained: grey' }
    : { picture: null, instead: 'Not known yet.' }

/** Before the first step there is only the model that the run begins with. */
const unansweredIn = (props: ViewProps) => unanswered(props.run!.step === 0 && isFromScratch(props))

interface LearningProps extends ViewProps {
  /** The original, where this tab has it without asking. */
  next: Picture | null
  also: Also
}

/** What the network of a run gives, as it learns. */
function Learning({ next, also, ...props }: LearningProps) {
  const { apart, queryOn } = props
  const run = props.run!
  const about = useQuery(props, 'original', null, { step: 'once' })
  const band = about.answer as unknown as Band | null
  const original = (about.answer as unknown as Picture | null) ?? next
  const { answer, failure } = useQuery(props, 'picture', { width: original?.width ?? 1 })
  const newest = answer as unknown as Picture | null
  // The first answer may be to a question from before the original's size was known.
  const learned = original && newest?.width === original.width ? newest : null
  const closeness = useMemo(
    () => (original && learned ? decibelsOf(meanSquaredError(original, learned)) : null),
    [original, learned],
  )
  const error = useMemo(
    () => (also === 'error' && original && learned ? errorPicture(original, learned) : null),
    [also, original, learned],
  )
  const shape = original ?? square
  const pixels = shape.width * shape.height
  const isPart = band !== null && band.end - band.start < pixels
  // It is the run's.
  const heldOut = props.whose === 'all' ? decibelsOf(last(run.accuracy)) : Number.NaN
  const trouble = failure ?? about.failure
  return (
    <>
      <div class="pictures">
        <Framed
          picture={original}
          shape={shape}
          title="Original"
          note={
            isPart
              ? `outlined: ${apart.length > 0 ? `the band of rank ${run.rank}` : "this tab's band"}, ${Math.round((100 * (band.end - band.start)) / pixels)} % of the pixels`
              : original && sizeOf(original)
          }
          instead="Not known yet."
          band={isPart ? band : null}
          lit={props.part?.pixels as Uint32Array | undefined}
        />
        {apart.length === 0 && (
          <Framed
            {...(learned
              ? { picture: learned, note: `step ${answer?.step}` }
              : unansweredIn(props))}
            shape={shape}
            title="Learned"
          />
        )}
        {apart.map((rank) => (
          <OfRank
            key={rank}
            {...props}
            query={queryOn(rank)}
            rank={rank}
            everyMs={250 * apart.length}
            original={original}
          />
        ))}
        {also === 'error' && (
          <Framed
            picture={error}
            shape={shape}
            title="Error"
            note={`${errorGain} times brighter; black is no error`}
            instead="Not known yet."
          />
        )}
        {also === 'finer' && original && <Finer {...props} shape={original} />}
      </div>
      <p class="closeness" data-decibels={closeness ?? ''}>
        {apart.length > 0 && `Rank ${run.rank}: `}
        <b>{closeness === null ? '–' : `${closeness.toFixed(1)} dB`}</b> PSNR on all pixels
        {Number.isFinite(heldOut) && (
          <>
            , {heldOut.toFixed(1)} dB on <Term word="held out">held-out</Term> pixels (one in ten)
          </>
        )}
        .<span class="quiet"> Higher is closer: 15 dB is a blur, 30 dB hard to tell apart.</span>
      </p>
      {trouble !== null && <p role="alert">{trouble}</p>}
    </>
  )
}

interface OfRankProps extends ViewProps {
  rank: number
  everyMs: number
  original: Picture | null
}

/** What the network of one rank of this tab gives, where each has its own. */
function OfRank({ rank, everyMs, original, ...props }: OfRankProps) {
  const [place, isInView] = useInView<HTMLDivElement>()
  const input = { width: original?.width ?? 1 }
  const isIdle = !isInView || original === null
  const { answer, failure } = useQuery(props, 'picture', input, { everyMs, isIdle })
  const learned = answer as unknown as Picture | null
  const decibels = useMemo(
    () => (original && learned ? decibelsOf(meanSquaredError(original, learned)).toFixed(1) : null),
    [original, learned],
  )
  return (
    <div ref={place} data-rank={rank}>
      <Framed
        {...(learned
          ? { picture: learned, note: decibels && `learned: ${decibels} dB` }
          : unansweredIn(props))}
        {...(failure && { note: failure })}
        shape={original ?? square}
        title={`rank ${rank}`}
        hue={props.hues[rank]}
      />
    </div>
  )
}

/** The network asked at twice as many places each way as the original has pixels. */
function Finer({ shape, ...props }: ViewProps & { shape: Picture }) {
  const { answer, failure } = useQuery(props, 'picture', { width: 2 * shape.width })
  return (
    <Framed
      {...(answer
        ? {
            picture: answer as unknown as Picture,
            note: 'the original has nothing between its pixels',
          }
        : unansweredIn(props))}
      {...(failure && { note: failure })}
      shape={shape}
      title="Learned, twice as fine"
    />
  )
}

/** Pixels that this rank draws from. */
interface Band {
  readonly start: number
  readonly end: number
}

const sizeOf = ({ width, height }: Picture) => `${width} × ${height} pixels`
