import { useMemo } from 'preact/hooks'
import { SaveAct, SaveNote } from '../checkpoints/save-act.tsx'
import { SettingsError, settingsErrorId } from '../experiment/settings-error.tsx'
import { formatSeconds } from '../parts/format.ts'
import { Named } from '../parts/named.tsx'
import { StatusDot } from '../parts/status-dot.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import { DownloadAct, DownloadNote } from '../run/download-act.tsx'
import type { Acts } from '../state/acts.ts'
import { huesByName } from '../state/hues.ts'
import { ratesOf } from '../state/rates.ts'
import {
  canStart,
  canStop,
  checkedDraft,
  isInCharge,
  isMaker,
  isRoomOn,
  isWaitingForNext,
  makerName,
  nameInCharge,
} from '../state/room-facts.ts'
import type { Phase, Run } from '../state/run.ts'
import { isRunning, makesSteps } from '../state/run-facts.ts'
import { canSave, continued, isSaved, startsFrom } from '../state/save-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { waitOf } from '../state/waiting-facts.ts'
import { asSentence, inPageWords } from './failure-words.ts'
import { ResetAct } from './reset-act.tsx'
import { phaseTitles, statusOf } from './status.ts'
import { useStripFocus } from './strip-focus.ts'
import { unreachedOf } from './unreached.ts'
import './room-acts.css'

interface StatusStripProps {
  snapshot: Snapshot
  acts: Acts
  /** With the one thing to do now alone, and a run's progress without its phases. */
  isShort?: boolean
}

/** Where the tab stands in one sentence, and what to do now, always in the same place. */
export function StatusStrip({ snapshot, acts, isShort = false }: StatusStripProps) {
  const { tone, title, text, short, more } = statusOf(snapshot)
  const { run, refusal, lobby } = snapshot
  const hues = useMemo(() => huesByName({ lobby, run }), [lobby, run?.members])
  // Where one button takes the place of another in a pause, too, clicks are taken as late.
  const focus = useStripFocus(isRunning(snapshot), isShort && run?.paused != null)
  return (
    <section
      ref={focus.strip}
      class="status"
      data-tone={tone}
      aria-label="Status"
      onKeyDownCapture={focus.onKeyDownCapture}
      onClickCapture={focus.onClickCapture}
    >
      <div class="status-row">
        <StatusDot tone={tone} />
        <div class="words">
          {/* Titles change rarely enough to be read out; the sentence counts steps. */}
          <h2 ref={focus.heading} tabIndex={-1} aria-labelledby="status-title">
            <span role="status" id="status-title">
              <Named text={title} hues={hues} />
            </span>
          </h2>
          <p>
            <Named text={asSentence((isShort && short) || text)} hues={hues} />
          </p>
        </div>
        <MainAct {...{ snapshot, acts, isShort }} isSettling={focus.isSettling} />
      </div>
      {more && <MoreWords key={more.summary} summary={more.summary} text={more.text} />}
      {(isRunning(snapshot) || !isShort) && (
        <Progress run={run} isShort={isShort} isOn={isRunning(snapshot)} />
      )}
      {run && isRunning(snapshot) && <SaveNote run={run} />}
      {isShort && run && <DownloadNote run={run} />}
      <SettingsError snapshot={snapshot} acts={acts} />
      <UnreachedHelp snapshot={snapshot} acts={acts} />
      {refusal && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
    </section>
  )
}

/** For who may, while steps are made, and through the tests between them: pauses all ranks after one step, and resumes them. */
function PauseAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { run } = snapshot
  if (!run || !isInCharge(snapshot) || run.isStopping) return null
  const isPaused = run.paused !== null
  if (!makesSteps(run)) return null
  // Behind the last step only its test is left.
  const isLast = run.step > 0 && run.step === run.totalSteps
  return (
    <>
      {isPaused && (
        <button
          key="step"
          type="button"
          class="pause"
          onClick={acts.oneStep}
          title="All ranks take one step and pause again"
        >
          One step
        </button>
      )}
      <button
        key="pause"
        type="button"
        class="pause"
        disabled={isLast && !isPaused}
        onClick={isPaused ? acts.goOn : acts.pause}
        title={
          isPaused ? 'All ranks resume' : 'All ranks pause after the same step and keep their links'
        }
      >
        {isPaused ? 'Resume' : 'Pause'}
      </button>
    </>
  )
}

/** Between two groups of an elastic run only the server reaches the other ranks. */
function StopAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  if (!canStop(snapshot)) return null
  const isAlone = snapshot.run?.undecided && snapshot.serverLost !== null
  return (
    <button
      type="button"
      class="stop"
      disabled={snapshot.run?.isStopping}
      onClick={acts.stop}
      title={isAlone ? 'Ends the run in this tab' : 'Ends the run on all ranks'}
    >
      Stop
    </button>
  )
}

interface MainActProps {
  snapshot: Snapshot
  acts: Acts
  isShort: boolean
  isSettling: boolean
}

/** Each button has its own key: one that became another would take clicks that were meant for the first. */
function MainAct({ snapshot, acts, isShort, isSettling }: MainActProps) {
  const { run } = snapshot
  const group = {
    role: 'group',
    'aria-label': 'Run',
    'aria-disabled': isSettling || undefined,
  } as const
  if (isRunning(snapshot)) {
    if (!isInCharge(snapshot)) {
      const maySave = canSave(snapshot) && !isShort
      const hasActs = maySave || canStop(snapshot)
      return (
        <>
          {!canStop(snapshot) && (
            <p class="quiet who-can">
              Only <Named text={nameInCharge(snapshot)} hues={huesByName(snapshot)} /> can pause or
              stop the run.
            </p>
          )}
          {hasActs && (
            <div key="guest" class="main-acts" {...group}>
              <WithoutAct key="without" snapshot={snapshot} acts={acts} />
              {maySave && <SaveAct key="save" snapshot={snapshot} acts={acts} />}
              <StopAct key="stop" snapshot={snapshot} acts={acts} />
            </div>
          )}
        </>
      )
    }
    return (
      <div key="running" class="main-acts" {...group}>
        <WithoutAct key="without" snapshot={snapshot} acts={acts} />
        {!isShort && <SaveAct key="save" snapshot={snapshot} acts={acts} />}
        {!isShort && <PauseAct key="pause" snapshot={snapshot} acts={acts} />}
        {!(isShort && run && isPausable(run)) && (
          <StopAct key="stop" snapshot={snapshot} acts={acts} />
        )}
        {isShort && <PauseAct key="pause" snapshot={snapshot} acts={acts} />}
      </div>
    )
  }
  const isUnsaved = canSave(snapshot) && !isSaved(snapshot)
  if (snapshot.serverLost !== null && isUnsaved) return null
  if (snapshot.serverLost !== null || isBarred(snapshot)) {
    return (
      <button key="reload" type="button" class="go" onClick={acts.reenter}>
        Reload
      </button>
    )
  }
  const download = isShort && run?.end?.kind === 'finished' && (
    <DownloadAct key="download" run={run} acts={acts} />
  )
  if (snapshot.stage !== 'inside' || !isMaker(snapshot) || isWaitingForNext(snapshot))
    return download || null
  const { config } = checkedDraft(snapshot)
  const later = continued(snapshot)
  const from = startsFrom(snapshot)
  return (
    <div key="waiting" class="main-acts" {...group}>
      {!isShort && <ResetAct key="reset" snapshot={snapshot} acts={acts} />}
      {download}
      {later && (
        <button
          key="continue"
          type="button"
          class="go"
          onClick={acts.continueRun}
          title="The same run with everyone who is here now, from its last checkpoint"
        >
          Resume from step {later.step}
        </button>
      )}
      <button
        key="start"
        type="button"
        class={later ? 'again' : 'go'}
        disabled={!config || !canStart(snapshot)}
        onClick={acts.start}
        aria-describedby={config ? undefined : settingsErrorId}
        title={config ? 'Starts training with everyone who is in the room now' : undefined}
      >
        {from ? `Start from ${from}` : run ? 'Start again' : 'Start'}
      </button>
    </div>
  )
}

/** A pause can be asked for: it has not been, and nobody decides. */
const isPausable = (run: Run): boolean => makesSteps(run) && !run.paused && !run.undecided

/** Only a reload lets this tab into the run. */
const isBarred = (snapshot: Snapshot): boolean => waitOf(snapshot)?.is === 'barred'

/** On every tab: any of them may have to decide. */
function WithoutAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { undecided } = snapshot.run ?? {}
  if (!undecided) return null
  return (
    <button type="button" class="go" onClick={acts.continueWithout}>
      Continue without {undecided.missing.length === 1 ? 'it' : 'them'}
    </button>
  )
}

/** Where a link could not be made: what to do about it, and for the maker a start without whom it was. */
function UnreachedHelp({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const isElsewhere = isWaitingForNext(snapshot) && !isBarred(snapshot)
  const isHelpless = snapshot.serverLost !== null || isRunning(snapshot) || isElsewhere
  const unreached = isHelpless ? null : unreachedOf(snapshot)
  const { part, failure } = useLoaded(
    'the help with links',
    () => import('./remedies.ts'),
    unreached !== null,
  )
  if (!unreached) return null
  const { without, detail } = unreached
  const maker = isMaker(snapshot) ? null : makerName(snapshot)
  const remedies = part?.remediesFor({ ...snapshot, maker, isOn: isRoomOn(snapshot) }) ?? [failure]
  return (
    <div class="help">
      <h3>What to do</h3>
      <ul>
        {remedies.map((remedy) => (
          <li key={remedy}>{part ? part.withCode(remedy) : remedy}</li>
        ))}
      </ul>
      {without.length > 0 && canStart(snapshot) && (
        <p class="acts">
          {without.map(({ names, ids }) => (
            <button
              key={ids.join()}
              type="button"
              onClick={() => acts.startWithout(ids)}
              title="Removes it from the room; it can rejoin with the link"
            >
              Start without {names}
            </button>
          ))}
        </p>
      )}
      {detail !== null && <MoreWords summary="Error details" text={inPageWords(detail)} />}
    </div>
  )
}

/** What only some want to read. */
function MoreWords({ summary, text }: { summary: string; text: string }) {
  return (
    <details>
      <summary>{summary}</summary>
      <p class="mono error-itself">{text}</p>
    </details>
  )
}

const idle = { secondsLeft: Number.NaN, stepsPerSec: Number.NaN }

const phases: readonly Phase[] = ['connect', 'load', 'broadcast', 'compile', 'train', 'evaluate']

interface ProgressProps {
  /** Null before there is one. */
  run: Run | null
  isShort: boolean
  isOn: boolean
}

/** How far the run is, or the last one came. Its place is kept before there is one. */
function Progress({ run, isShort, isOn }: ProgressProps) {
  const { step, totalSteps, phase } = run ?? { step: 0, totalSteps: 0, phase: null }
  const share = totalSteps > 0 ? step / totalSteps : 0
  const { secondsLeft, stepsPerSec } = run && isOn ? ratesOf(run) : idle
  const isDone = run?.end?.kind === 'finished'
  const at = isDone ? phases.length : phase === null ? -1 : phases.indexOf(phase)
  return (
    <div class="progress" aria-hidden={isOn ? undefined : true}>
      {!isShort && (
        <ol class="phases" aria-label="Phases">
          {phases.map((one, index) => (
            <li
              key={one}
              data-is={index === at ? 'now' : index < at ? 'past' : 'next'}
              aria-current={index === at ? 'step' : undefined}
            >
              {phaseTitles[one]}
            </li>
          ))}
        </ol>
      )}
      <div
        class="bar"
        role="progressbar"
        aria-label="Steps done"
        aria-valuemin={0}
        aria-valuemax={totalSteps || 1}
        aria-valuenow={step}
      >
        <div style={{ width: `${100 * share}%` }} />
      </div>
      <p class="progress-words">
        <span>
          {totalSteps ? `${step} / ${totalSteps} steps` : 'no step yet'}
          {!isShort && run?.config && !run.config.steps && totalSteps
            ? ` · epoch ${run.dataEpoch + 1} of ${run.config.epochs}`
            : ''}
        </span>
        <span>
          {Number.isFinite(stepsPerSec) && stepsPerSec > 0
            ? `${isShort ? '' : `${stepsPerSec.toFixed(1)} steps/s · `}${formatSeconds(secondsLeft)} left`
            : ''}
        </span>
      </p>
    </div>
  )
}
