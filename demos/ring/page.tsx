import { useEffect, useMemo, useState } from 'preact/hooks'
import { Later } from '../../src/ui/demo/later.tsx'
import { isLesson, lessonParameter } from '../../src/ui/lesson/lesson.ts'
import { LessonPanel } from '../../src/ui/lesson/lesson-panel.tsx'
import { PageFoot } from '../../src/ui/parts/page-foot.tsx'
import { PageTop } from '../../src/ui/parts/page-top.tsx'
import { StatusDot } from '../../src/ui/parts/status-dot.tsx'
import { Term } from '../../src/ui/parts/term.tsx'
import { type Player, usePlayer } from '../../src/ui/parts/use-player.ts'
import { ringLesson } from '../lessons/ring.ts'
import { Controls } from './controls.tsx'
import { Costs, Readouts, Result, verdictsOf } from './counts.tsx'
import { HeldRows } from './held-rows.tsx'
import { meta } from './meta.ts'
import { type Moment, momentOf } from './moment.ts'
import { type Pace, paces, playedAt } from './paces.ts'
import { RingDrawing } from './ring-drawing.tsx'
import { queryOf, type RingSettings, settingsIn, settle } from './settings.ts'
import type { Story } from './story.ts'
import { Timeline } from './timeline.tsx'
import { useRun } from './use-run.ts'
import { algorithmWords, deedWords, formatTime, lossWords, momentWords } from './words.ts'

const given = settingsIn(location.search)
const hasLesson = isLesson(ringLesson, location.search)
const paceText = new URLSearchParams(location.search).get('pace')
const givenPace = paces.find(([one]) => one === paceText)?.[0]
const refused =
  paceText !== null && givenPace === undefined
    ? [...given.refused, `pace=${paceText}: expected ${paces.map(([one]) => one).join(', ')}`]
    : given.refused

const loadArticle = async () => (await import('./article.tsx')).RingArticle

/** The page: settings decide a run, a clock a moment of it, and all else is drawn from that. */
export function RingPage() {
  const [settings, setSettings] = useState(given.settings)
  const [pace, setPace] = useState<Pace>(givenPace ?? 'read')
  const { story, isUnderWay, error } = useRun(settings)
  const played = useMemo(() => playedAt(story, pace), [story, pace])
  const player = usePlayer(played)
  const query = new URLSearchParams(queryOf(settings))
  if (pace !== 'read') query.set('pace', pace)
  if (hasLesson) query.set(lessonParameter, String(ringLesson.number))
  const search = query.size > 0 ? `?${query}` : ''
  const link = `${location.origin}${location.pathname}${search}`
  useEffect(() => history.replaceState(null, '', `${location.pathname}${search}`), [search])
  useKeys(player)
  const moment = story && momentOf(story, player.ms)
  const change = (some: Partial<RingSettings>) => setSettings((old) => settle({ ...old, ...some }))
  return (
    <div class="page">
      <PageTop home="../../" tagline={meta.title} />
      <main>
        {hasLesson && <LessonPanel lesson={ringLesson} facts={{ story, moment }} home="../../" />}
        <div class="about">
          <p>
            Each <Term word="rank" /> begins with its own numbers, and must end with the sum of all:
            an <Term word="all-reduce" />. It is the real code on a slow clock; only the links are
            simulated.
          </p>
        </div>
        <Transport
          {...{ story, moment, player, error, pace }}
          isUnderWay={isUnderWay}
          onPace={setPace}
        />
        <div class="desk">
          <div class="side">
            <Controls settings={settings} link={link} refused={refused} onChange={change} />
            <LinksExplained settings={settings} />
          </div>
          {story && moment && (
            <div class="instruments" aria-busy={isUnderWay}>
              <div class="pair seen">
                <RingDrawing story={story} moment={moment} />
                <HeldRows story={story} moment={moment} />
              </div>
              <Readouts story={story} moment={moment} />
              <Timeline story={story} ms={moment.ms} onSeek={player.seek} />
              <div class="pair">
                <Costs story={story} />
                <Result story={story} isOver={moment.ms >= story.endMs} />
              </div>
            </div>
          )}
        </div>
        <Later what="the article" load={loadArticle}>
          {(Article) => <Article />}
        </Later>
      </main>
      <PageFoot home="../../" />
    </div>
  )
}

interface TransportProps {
  readonly story: Story | undefined
  readonly moment: Moment | undefined
  readonly player: Player
  readonly error: string
  readonly isUnderWay: boolean
  readonly pace: Pace
  readonly onPace: (pace: Pace) => void
}

/** Where the run is, and the clock's buttons. */
function Transport({ story, moment, player, error, isUnderWay, pace, onPace }: TransportProps) {
  const { isPlaying, rate } = player
  const isOver = story !== undefined && player.ms >= story.endMs
  const isGood = story !== undefined && verdictsOf(story).every(({ is }) => is)
  const isBad = error !== '' || (isOver && !isGood)
  const tone = isBad ? 'bad' : isOver ? 'good' : isPlaying ? 'busy' : 'idle'
  const phase = moment?.phase ?? (error ? 'No run' : 'Computing the run')
  return (
    <section class="status transport" data-tone={tone} data-busy={isUnderWay} aria-label="Clock">
      <div class="status-row">
        <StatusDot tone={tone} />
        <div class="words">
          <h2>{isOver && isBad && !story.failure ? 'Finished, with wrong sums' : phase}</h2>
          <p>
            {error ||
              (story
                ? `All-reduce by ${algorithmWords[story.algorithm]}${story.settings.algorithm === 'auto' ? ', chosen by size' : ''}; ${paceWords(rate)}`
                : '')}
          </p>
        </div>
        <div class="clock">
          <button type="button" onClick={() => player.seek(0)} disabled={!story || player.ms === 0}>
            To start
          </button>
          <button
            type="button"
            onClick={() => player.step(-1)}
            disabled={!story || player.ms === 0}
            aria-keyshortcuts="ArrowLeft"
          >
            ◀ Step
          </button>
          <button
            type="button"
            class="go"
            onClick={player.toggle}
            disabled={!story}
            aria-keyshortcuts="Space"
          >
            {isPlaying ? 'Pause' : isOver ? 'Play again' : 'Play'}
          </button>
          <button
            type="button"
            onClick={() => player.step(1)}
            disabled={!story || isOver}
            aria-keyshortcuts="ArrowRight"
          >
            Step ▶
          </button>
          <label class="pace">
            <span class="unseen">Speed</span>
            <select value={pace} onChange={(event) => onPace(event.currentTarget.value as Pace)}>
              {paces.map(([value, words]) => (
                <option key={value} value={value}>
                  {words}
                </option>
              ))}
            </select>
          </label>
        </div>
      </div>
      <Now story={story} moment={moment} isPlaying={isPlaying} />
    </section>
  )
}

interface NowProps {
  readonly story: Story | undefined
  readonly moment: Moment | undefined
  readonly isPlaying: boolean
}

/** What happens now. Announced when the clock stands, so that screen readers do not talk all through playing. */
function Now({ story, moment, isPlaying }: NowProps) {
  const isHere = story && moment
  const hint = 'Press Play. Space plays and pauses, the arrow keys step from arrival to arrival.'
  const came =
    isHere && (isPlaying ? lossWords(moment) : moment.ms === 0 ? hint : momentWords(story, moment))
  return (
    <div class="now" role="status" aria-live={isPlaying ? 'off' : 'polite'}>
      {isHere && !isPlaying && moment.ms > 0 && (
        <span class="unseen">{`${formatTime(moment.ms)}: ${moment.phase}. `}</span>
      )}
      <p class="deed">{isHere && deedWords(story, moment)}</p>
      <p class="came">{came}</p>
    </div>
  )
}

function paceWords(rate: number): string {
  if (rate === 1) return 'shown in real time'
  const times = rate < 1 ? 1 / rate : rate
  const rounded = times >= 10 ? Math.round(times).toLocaleString('en') : times.toFixed(1)
  return `shown ${rounded} times ${rate < 1 ? 'slower' : 'faster'}`
}

/** What is true of the links and what is made up. */
function LinksExplained({ settings }: { settings: RingSettings }) {
  return (
    <section class="panel about-links" aria-labelledby="explained-title">
      <header class="panel-head">
        <h2 id="explained-title">What the links do</h2>
      </header>
      <div class="explained">
        <p>
          <strong>
            <Term word="latency">Latency</Term>
          </strong>{' '}
          is how long each message takes to the next <Term word="rank" />, one way.
        </p>
        <p>
          <strong>Rate</strong> is what a rank sends in total: its links share one uplink, as in a
          laptop.
        </p>
        <p>
          <strong>Loss</strong> never loses data. Channels are reliable and ordered, like WebRTC's
          over SCTP: a lost message is resent after a timeout, and later messages on its link wait
          for it. The timeout is 0.5 s (Chromium's first), then 1 s, 2 s and so on. A real channel
          often notices sooner, when later packets get through, and loses packets of about 1,200
          bytes, not messages. A rank not heard from for 8 s counts as lost and ends the run.
        </p>
        <p>
          <strong>Machines</strong>: between ranks of one machine there is a tenth of the latency,
          ten times the rate and no loss.
        </p>
        {settings.flip > 0 && (
          <p>
            <strong>The flipped bit</strong> gets through, because frames have no checksum: on real
            links DTLS and SCTP check the data. So the sums must show it.
          </p>
        )}
      </div>
    </section>
  )
}

/** Fields that take these keys themselves; the slider of the time gives its arrows up for steps. */
const needsArrows = 'input:not(.scrub), select, textarea'
const needsSpace = 'input:not([type=range]), select, textarea, button, summary, a'

/** Space plays and pauses, arrows step, wherever the focus is but in a field that needs them itself. */
function useKeys({ toggle, step }: Player): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement
      if (event.altKey || event.ctrlKey || event.metaKey) return
      const isArrow = event.key === 'ArrowRight' || event.key === 'ArrowLeft'
      if (target.closest(isArrow ? needsArrows : needsSpace)) return
      if (event.key === ' ') toggle()
      else if (event.key === 'ArrowRight') step(1)
      else if (event.key === 'ArrowLeft') step(-1)
      else return
      event.preventDefault()
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  })
}
