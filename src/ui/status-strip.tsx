import type { Acts } from './acts.ts'
import { formatSeconds } from './format.ts'
import { ratesOf } from './rates.ts'
import { checkDraft } from './settings.ts'
import {
  canStart,
  isMaker,
  isRunning,
  isWaitingForNext,
  type Phase,
  type Run,
  type Snapshot,
} from './state.ts'
import { phaseTitles, statusOf } from './status.ts'

/** Where the tab stands in one sentence, and the one thing to do now, always in the same place. */
export function StatusStrip({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { tone, title, text } = statusOf(snapshot)
  const { run, refusal } = snapshot
  return (
    <section class="status" data-tone={tone} aria-label="Status">
      <div class="status-row">
        <Lamp tone={tone} />
        <div class="words">
          {/* Titles change rarely enough to be read out; the sentence counts steps. */}
          <h2>
            <span role="status">{title}</span>
          </h2>
          <p>{text}</p>
        </div>
        <MainAct snapshot={snapshot} acts={acts} />
      </div>
      {run && isRunning(snapshot) && <Progress run={run} />}
      {refusal && (
        <p class="refusal" role="alert">
          {refusal}
        </p>
      )}
    </section>
  )
}

/** Says by shape and colour how things stand. */
export function Lamp({ tone }: { tone: string }) {
  const shapes: Record<string, string> = {
    idle: 'M8 3a5 5 0 1 0 0 10a5 5 0 1 0 0-10',
    busy: 'M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12',
    good: 'M3 8.5l3.5 3.5L13 4.5',
    bad: 'M4 4l8 8M12 4l-8 8',
  }
  return (
    <svg class="lamp" viewBox="0 0 16 16" aria-hidden="true">
      <path d={shapes[tone]} />
    </svg>
  )
}

/** For the maker, while steps are made: pauses all ranks behind one step, and lets them go on. */
function PauseAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { run } = snapshot
  if (!run || !isMaker(snapshot) || run.isStopping) return null
  const isPaused = run.paused !== null
  if (run.phase !== 'train' && !isPaused) return null
  return (
    <button
      type="button"
      class="pause"
      onClick={isPaused ? acts.goOn : acts.pause}
      title={
        isPaused ? 'All ranks go on' : 'All ranks stop behind the same step, and keep their links'
      }
    >
      {isPaused ? 'Go on' : 'Pause'}
    </button>
  )
}

function MainAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  if (isRunning(snapshot)) {
    return (
      <div class="main-acts">
        <PauseAct snapshot={snapshot} acts={acts} />
        <button
          type="button"
          class="stop"
          disabled={snapshot.run?.isStopping}
          // The second click of a double click on Start lands here.
          onClick={({ detail }) => detail < 2 && acts.stop()}
          title="Ends the run on all ranks"
        >
          {isMaker(snapshot) ? 'Stop' : 'Stop for all'}
        </button>
      </div>
    )
  }
  if (snapshot.serverLost !== null) {
    return (
      <button type="button" class="go" onClick={acts.reenter}>
        Reload
      </button>
    )
  }
  if (snapshot.stage !== 'inside' || !isMaker(snapshot) || isWaitingForNext(snapshot)) return null
  const { config } = checkDraft(snapshot.draft, snapshot.lobby?.members.length)
  return (
    <button
      type="button"
      class="go"
      disabled={!config || !canStart(snapshot)}
      onClick={acts.start}
      title={config ? 'Seals the room as it is and trains' : 'Correct the settings first'}
    >
      {snapshot.run ? 'Start again' : 'Start'}
    </button>
  )
}

const phases: readonly Phase[] = ['connect', 'load', 'broadcast', 'compile', 'train', 'evaluate']

function Progress({ run }: { run: Run }) {
  const { step, totalSteps, phase } = run
  const share = totalSteps > 0 ? step / totalSteps : 0
  const { secondsLeft, stepsPerSec } = ratesOf(run)
  const at = phases.indexOf(phase)
  return (
    <div class="progress">
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
          {run.config && !run.config.steps && totalSteps
            ? ` · epoch ${run.dataEpoch + 1} of ${run.config.epochs}`
            : ''}
        </span>
        <span>
          {Number.isFinite(stepsPerSec) && stepsPerSec > 0
            ? `${stepsPerSec.toFixed(1)} steps/s · ${formatSeconds(secondsLeft)} left`
            : ''}
        </span>
      </p>
    </div>
  )
}
