import { meshLimit } from '../../peer/room/edges.ts'
import { memberOf } from '../../peer/room/lives.ts'
import type { Reached } from '../../peer/room/messages.ts'
import { givenData, type TrainConfig } from '../../trainer/settings/config.ts'
import { pipelinesOf, ranksNeeded } from '../../trainer/settings/parallel.ts'
import type { ErrorCode } from '../../util/errors.ts'
import { formatBytes, formatMany, formatMetric, formatSeconds } from '../parts/format.ts'
import { firstErrorOf } from '../settings/check.ts'
import { metaOfDraft } from '../settings/list.ts'
import { samplesOfStep } from '../state/rates.ts'
import {
  admits,
  canStart,
  checkedDraft,
  isMaker,
  isWatching,
  makerName,
  tabCount,
} from '../state/room-facts.ts'
import type { Phase, Run, RunEnding } from '../state/run.ts'
import {
  awaited,
  goneRanks,
  hasEndedBeforeJoin,
  hasEndedWithout,
  hasOwnModels,
  isRunning,
  rankName,
} from '../state/run-facts.ts'
import { continued, startsFrom } from '../state/save-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { stoppedBy } from '../state/stop-words.ts'
import { waitOf } from '../state/waiting-facts.ts'
import { asSentence, failureTexts, inPageWords, resumedDifference } from './failure-words.ts'
import type { Status } from './standing.ts'
import { unreachedOf } from './unreached.ts'
import { tabWaits, waitingStatus } from './waiting.ts'

export const phaseTitles: Record<Phase, string> = {
  connect: 'Connecting',
  load: 'Loading data',
  broadcast: 'Sending parameters',
  compile: 'Compiling',
  train: 'Training',
  evaluate: 'Testing',
}

export function statusOf(snapshot: Snapshot): Status {
  const { stage, trouble, run, serverLost, lobby } = snapshot
  if (trouble) return { tone: 'bad', title: trouble.title, text: trouble.text }
  if (stage === 'opening') {
    return { tone: 'busy', title: 'Opening the GPU', text: 'Asking the browser for a GPU device.' }
  }
  if (snapshot.askedHost !== null) {
    return {
      tone: 'idle',
      title: 'Waiting to be let in',
      text: `${snapshot.askedHost}, the host of this room, has been asked. Keep this tab open.`,
    }
  }
  if (stage === 'entering' || !lobby) {
    return {
      tone: 'busy',
      title: 'Entering the room',
      text: 'Checking the key of the room with the server.',
    }
  }
  if (run && isRunning(snapshot))
    return run.isWatched ? watchedStatus(run) : runningStatus(snapshot, run)
  if (serverLost !== null) {
    const then =
      'This tab rejoins the room when the server is back: check that npm start is still running.'
    if (run?.end?.kind === 'failed' && run.end.code !== 'signal.lost')
      return failedStatus(
        snapshot,
        run,
        run.end,
        ` The server is gone, too: no run can start until it is back. ${then}`,
      )
    return {
      tone: 'bad',
      title: 'The server is gone',
      text: `${endedWords(run)}No run can start without it. ${then}`,
    }
  }
  const next = whatNext(snapshot)
  const wait = waitOf(snapshot)
  if (wait) return waitingStatus(snapshot, wait)
  if (run?.end?.kind === 'finished') {
    const whose = hasOwnModels(run) ? `Rank ${run.rank}'s model: ` : ''
    return {
      tone: 'good',
      title: 'Finished',
      text: `${whose}${reachedWords(run.end.result, run.end.result)}.${unlikeWords(run)} ${next}`,
      ...whatDiffers(run),
    }
  }
  if (run?.end?.kind === 'stopped') {
    return {
      tone: 'idle',
      title: 'Stopped',
      text: `${endedWords(run)}${next}`,
    }
  }
  if (run && hasEndedBeforeJoin(run)) {
    return {
      tone: 'idle',
      title: 'The run is over',
      text: `It ended before this tab had joined it. ${next}`,
    }
  }
  if (run && hasEndedWithout(run)) {
    const own = `This tab was away, and has the weights after step ${run.step}.`
    const say = (title: string, what: string): Status => ({
      tone: 'idle',
      title,
      text: `${what} ${own} ${next}`,
    })
    if (lobby.state !== 'finished') return say('The run is over', 'It ended without this tab.')
    const meta = metaOfDraft(snapshot.experiments, run.config ?? snapshot.draft)
    const { reached } = lobby
    return say('Finished', reached ? `${reachedWords(meta, reached)}.` : 'By the other tabs.')
  }
  if (run?.end?.code === 'peer.removed') {
    const [gone] = goneRanks(snapshot)
    const who = gone === undefined ? 'A rank' : asSentence(rankName(run, gone))
    return {
      tone: 'idle',
      title: `${who} was removed`,
      text: `${makerName(snapshot)} removed it from the room, which ended the run at step ${run.step}. ${next}`,
    }
  }
  const unreached = unreachedOf(snapshot)
  if (run && unreached) return { tone: 'bad', title: unreached.title, text: unreached.text }
  if (run?.end) {
    const later = continued(snapshot)
    const further = later ? ` It was saved at step ${later.step} and can resume from there.` : ''
    return failedStatus(snapshot, run, run.end, further)
  }
  return lobbyStatus(snapshot)
}

type RunMetric = Pick<ReturnType<typeof metaOfDraft>, 'metric'>

/** What a run has come to. */
function reachedWords({ metric }: RunMetric, { value, seconds }: Reached): string {
  const what =
    metric.unit === 'share'
      ? `${formatMetric(metric, value)} of the test samples are right`
      : `Test ${metric.name} ${formatMetric(metric, value)}`
  return `${what} after ${formatSeconds(seconds)}`
}

/** Why the run failed, then `further`. */
function failedStatus(
  snapshot: Snapshot,
  run: Run,
  end: Exclude<RunEnding, { kind: 'finished' }>,
  further: string,
): Status {
  const error = inPageWords(end.text)
  const plain =
    failureTexts[end.code as ErrorCode]?.text?.(run.step) ?? lossWords(snapshot, run, end)
  return {
    tone: 'bad',
    title: failureTitle(snapshot, run),
    text: `${plain ?? error}${further}`,
    ...(plain && { more: { summary: 'Error details', text: error } }),
  }
}

/** That the run was ended by people, or has come to its end. */
function endedWords(run: Run | null): string {
  if (run?.end?.kind === 'finished') return 'The run has finished. '
  if (run?.end?.kind !== 'stopped') return ''
  return `${stoppedBy(run.end.text)} stopped the run at step ${run.step}. `
}

/** Of a run in which this tab has no rank. */
function watchedStatus(run: Run): Status {
  const title = run.paused ? 'Paused' : phaseTitles[run.phase === 'evaluate' ? 'train' : run.phase]
  const text = `This tab watches ${formatMany(run.worldSize, 'rank')}.${changeWords(run)}`
  return { tone: run.paused ? 'idle' : 'busy', title, text }
}

function runningStatus(snapshot: Snapshot, run: Run): Status {
  const ranks = formatMany(run.worldSize, 'rank')
  // Tests are a part of training: the title, which is read out, does not change with each.
  const phase = phaseTitles[run.phase === 'evaluate' ? 'train' : run.phase]
  const away = byTab(awaited(run))
  const title = away.length > 0 ? `Waiting for ${away.join(', ')}` : phase
  const say = (text: string): Status => ({ tone: 'busy', title, text })
  if (run.isStopping) return { tone: 'busy', title: 'Stopping', text: 'Telling all ranks to stop.' }
  if (run.paused) {
    const by = run.paused.by.map((rank) => run.members[rank]?.name ?? `rank ${rank}`).join(', ')
    return {
      tone: 'idle',
      title: 'Paused',
      text: `${by ? `By ${by}, after` : 'After'} step ${run.paused.step}. All ranks keep their links.${by ? '' : changeWords(run)}`,
    }
  }
  const { joins, waits } = run
  if (joins && waits) return { tone: 'idle', title: 'Waiting', text: tabWaits(waits) }
  if (run.undecided) return undecidedStatus(run.undecided)
  if (run.lostName !== null)
    return { ...say(waitingWords(run.lostName)), title: `Continuing without ${run.lostName}` }
  switch (run.phase) {
    case 'connect':
      if (run.worldSize === 1) return say('One rank: no links are needed.')
      return {
        ...say(
          `Linking ${ranks}, ${run.worldSize <= meshLimit ? 'each to all the others' : 'each to its neighbours in the ring and some across it'}. ${linkingWords(run)} A rank that does not answer within 20 s counts as unreachable.`,
        ),
        short: linkingWords(run),
      }
    case 'load':
      return say(loadingWords(run))
    case 'broadcast':
      return say('Rank 0 is sending its initial parameters to all.')
    case 'compile':
      return say(`Recording one step and building its shaders.${joinsWords(run)}`)
    default: {
      const lost =
        snapshot.serverLost === null
          ? ''
          : ' The server is gone; the run continues without it, and no tab can join until it is back.'
      if (run.phase === 'evaluate')
        return say(`Testing on held-out samples, split among the ranks.${lost}`)
      const batch = formatMany(samplesOfStep(run) || 0, 'sample')
      const how =
        run.worldSize === 1
          ? `This tab trains on all ${batch} of every step.`
          : hasOwnModels(run)
            ? `${ranks}, each with its own model, share the ${batch} of every step.`
            : `${ranks} share the ${batch} of every step.`
      return {
        ...say(
          `${how}${heldUpWords(run)}${resumedWords(run)}${changeWords(run)}${waitsWords(snapshot, run)}${brokeWords(run)}${stateWords(run)}${unlikeWords(run)}${leftOutWords(run)}${silentWords(run)}${lost}`,
        ),
        ...whatDiffers(run),
      }
    }
  }
}

/** Of an elastic run that has lost a rank and forms its next group. */
const waitingWords = (who: string): string =>
  `${asSentence(who)} was lost. The others decide who trains on, and continue from their newest state.`

/** Of an elastic run whose ranks cannot be sure that no others train on without them, or that no steps are lost. */
function undecidedStatus({ missing, hadMore, step }: NonNullable<Run['undecided']>): Status {
  const one = missing.length === 1
  const [has, it, its, trains, tab] = one
    ? ['has', 'it', 'its', 'it trains', 'that tab']
    : ['have', 'them', 'their', 'they train', 'those tabs']
  const why = hadMore
    ? `had newer steps than any tab here, and ${has} left or not answered.`
    : `${has} not answered.`
  const next =
    step === null
      ? `No tab here has the state of the run: without ${it} it begins again.`
      : `Without ${it} the run continues from step ${step}${hadMore ? `: ${its} later steps are lost, and computed again` : ''}.`
  return {
    tone: 'bad',
    title: 'Waiting',
    text: `${missing.join(', ')} ${why} ${next} If ${trains} on elsewhere, continuing here makes a second run. Check ${tab} before you continue without ${it}.`,
  }
}

/** Whose link has ended for what it sent. */
const brokeWords = ({ broke }: Run): string =>
  broke
    ? ` ${broke.who} sent what this program never sends: it ${broke.what}. The link to it has ended.`
    : ''

/** Whose gradients did not count. */
const leftOutWords = ({ leftOut }: Run): string =>
  [...leftOut]
    .map(
      ([name, { steps, newest }]) =>
        ` The gradients of ${name} did not count in ${formatMany(steps, 'step')}, last in step ${newest}: they were not numbers, or far larger than those of the others.`,
    )
    .join('')

/** Who has not answered for seconds: soon the run continues, or ends, without them. */
function silentWords(run: Run): string {
  if (run.silent.length === 0) return ''
  const who = run.silent.map((rank) => rankName(run, rank)).join(', ')
  return ` No answer from ${who} for more than 3 seconds.`
}

/** Which tab is not let in yet, as the room names it. */
function waitsWords({ lobby }: Snapshot, { waits }: Run): string {
  if (!waits) return ''
  const name = lobby?.members.find(({ id }) => id === memberOf(waits.who))?.name
  return ` ${name ? asSentence(name) : 'A new tab'} waits: ${waits.why}`
}

/** Whose connection is too slow for the run's steps. */
function heldUpWords({ heldUp, worldSize }: Run): string {
  if (!heldUp) return ''
  const { name, why } = heldUp
  if (name !== null) return ` The connection of ${name} holds up the run: ${why}`
  return worldSize === 2
    ? ` The connection between the two ranks holds up the run: ${why}`
    : ` The connection of this tab holds up the run, or those of all do: ${why}`
}

/** Who left an elastic run last, who joined it, and from which step it continued. */
function changeWords({ changes, regrouped, members, rank }: Run): string {
  if (!regrouped) return ''
  const { left, came } = changes.at(-1) ?? { left: [], came: [] }
  // Ranks of one tab may join one after the other.
  const own = members[rank] && tabOf(members[rank].name)
  if (left.length === 0 && came.every((name) => tabOf(name) === own))
    return ` This tab joined after step ${regrouped.step}.`
  const who = [
    ...(left.length > 0 ? [`${byTab(left).join(', ')} left`] : []),
    ...(came.length > 0 ? [`${byTab(came).join(', ')} joined`] : []),
  ].join('; ')
  return ` ${who}: the run continued from step ${regrouped.step}.`
}

/** Name of the tab of a rank: `Grace` of `Grace · 3`. */
const tabOf = (name: string): string => name.replace(/ · \d+$/, '')

/** Names of ranks, those of a tab as one: `Ada`, `Grace (3 ranks)`. */
function byTab(names: readonly string[]): string[] {
  const ranks = new Map<string, number>()
  for (const name of names) {
    const tab = tabOf(name)
    ranks.set(tab, (ranks.get(tab) ?? 0) + 1)
  }
  return Array.from(ranks, ([tab, count]) => (count > 1 ? `${tab} (${count} ranks)` : tab))
}

/** Of a newcomer that gets what it lacks. */
const stateWords = ({ given }: Run): string =>
  given && given.doneBytes < given.totalBytes
    ? ` A new tab gets the run's state: ${givenWords(given)}.`
    : ''

const givenWords = ({ doneBytes, totalBytes }: NonNullable<Run['given']>): string =>
  `${formatBytes(doneBytes)} of ${formatBytes(totalBytes)}`

/** Why the bits of a run are not those of another. */
function whatDiffers({ resumed, unlike }: Run): Pick<Status, 'more'> {
  const differences = [
    ...(resumed?.differences ?? []),
    ...unlike.flatMap(({ step, text, isLasting }) =>
      isLasting ? [`after step ${step}: ${text}`] : [],
    ),
  ]
  if (differences.length === 0) return {}
  return { more: { summary: 'What differs', text: differences.join('; ') } }
}

/** Of an exact run: whose bits or states were others than the run's. */
function unlikeWords({ unlike, members }: Run): string {
  const lasting = unlike.find(({ isLasting }) => isLasting)
  const mended = unlike.findLast(({ isLasting }) => !isLasting)
  const mending = mended ? ` After step ${mended.step} ${mended.text}.` : ''
  if (!lasting) return mending
  const { step, who } = lasting
  const isOfSome = who.length > 0 && who.length < members.length
  const others = isOfSome ? `without ${who.join(', ')}` : 'in other tabs'
  return `${mending} All tabs hold the same weights, but ${step > 0 ? `since step ${step} ` : ''}not those of a run ${others}.`
}

/** Which of this rank's links are up, and whom the others wait for. */
function linkingWords(run: Run): string {
  const missing = run.peers.filter((rank) => !(rank in run.ways))
  if (missing.length === 0) return 'This tab is linked; others are still connecting.'
  const tabs = byTab(missing.map((rank) => run.members[rank].name))
  const more = tabs.length > 3 ? ` and ${tabs.length - 3} more` : ''
  return `This tab is waiting for ${tabs.slice(0, 3).join(', ')}${more}.`
}

/** Of a tab that joins a run that is on. */
const joinsWords = (run: Run): string =>
  run.joins ? stateWords(run) || ' The others train; this tab joins them once it is ready.' : ''

/** Where the data comes from, and how much of it has come. */
function loadingWords(run: Run): string {
  const { config, given, worldSize, joins } = run
  if (joins) return `Generating or downloading the data.${joinsWords(run)}`
  if (config?.data !== givenData) return 'Every rank is generating or downloading the data.'
  if (worldSize === 1) return 'Reading your own data.'
  if (given && given.doneBytes >= given.totalBytes)
    return 'All ranks have received the data and are reading it.'
  const sent = given ? `: ${givenWords(given)}` : ''
  return `One rank is sending the user-supplied data to all${sent}.`
}

/** Which checkpoint a run continues from, and why its bits differ from the saved run's. */
function resumedWords({ resumed, worldSize }: Run): string {
  if (!resumed) return ''
  const { step, holders, differences } = resumed
  const held = holders === undefined ? '' : `, which ${holders} of ${worldSize} ranks have`
  const others = differences.length > 0 ? ` ${resumedDifference(differences)}` : ''
  return ` Resumed from the checkpoint of step ${step}${held}.${others}`
}

function lobbyStatus(snapshot: Snapshot): Status {
  const count = snapshot.lobby!.members.length
  const tabs = tabCount(snapshot.lobby!)
  const unreached = unreachedOf(snapshot)
  if (!isMaker(snapshot)) {
    if (unreached) return { tone: 'bad', title: unreached.title, text: unreached.text }
    return {
      tone: 'idle',
      title: `Waiting for ${makerName(snapshot)} to start`,
      text: `${formatMany(tabs, 'tab')} in the room. ${isWatching(snapshot) ? 'This tab watches.' : 'Keep this one open.'}`,
    }
  }
  const checked = checkedDraft(snapshot)
  const error = canStart(snapshot) ? firstErrorOf(checked) : null
  const { parallel = 'dp' } = checked.known
  const needed = ranksNeeded(parallel, count)
  if (error?.setting.key === 'parallel' && needed) {
    const { stages = 1, replicas = Number.POSITIVE_INFINITY } = pipelinesOf(parallel) ?? {}
    const isTooMany = count > stages * replicas
    const are = count === 1 ? 'there is one' : `there are ${count}`
    const act = isTooMany ? 'Close or remove tabs' : 'Open the link in more tabs to add ranks'
    return {
      tone: 'idle',
      title: isTooMany
        ? 'Too many tabs'
        : tabs === 1
          ? 'Alone in the room'
          : 'Waiting for more tabs',
      text: `${act}: ${parallel} needs ${needed}, and ${are}.`,
    }
  }
  if (error) {
    return {
      tone: 'bad',
      title: 'A setting is wrong',
      text: `${formatMany(tabs, 'tab')} in the room. Start works once the setting is right.`,
    }
  }
  if (unreached) return { tone: 'bad', title: unreached.title, text: unreached.text }
  if (tabs === 1) {
    return {
      tone: 'idle',
      title: 'Alone in the room',
      text:
        count === 1
          ? 'Open the link in more tabs to add ranks, or start now and train in this tab alone.'
          : `Open the link in more tabs to add ranks, or start now with the ${count} ranks of this tab.`,
    }
  }
  const from = startsFrom(snapshot)
  const { config } = checkedDraft(snapshot)
  const resumes = from ? ` The run resumes from ${from}, as chosen under Checkpoints.` : ''
  return {
    tone: 'idle',
    title: `Ready with ${formatMany(count, 'rank')}`,
    text: `Start once everyone is here.${resumes}${from ? '' : laterWords(config)}`,
  }
}

/** For tabs that come during the run. */
const laterWords = (config: Partial<TrainConfig> | null): string =>
  ` Anyone who opens the link later ${config && admits(config) ? 'joins the run' : 'waits for the next run'}.`

/** Who can do what after a run. */
function whatNext(snapshot: Snapshot): string {
  const later = continued(snapshot)
  const from = startsFrom(snapshot)
  if (from && isMaker(snapshot))
    return `The next run resumes from ${from}, as chosen under Checkpoints.`
  if (later) return `Resume from step ${later.step}, or start again from the beginning.`
  if (isMaker(snapshot))
    return firstErrorOf(checkedDraft(snapshot))
      ? 'Fix the settings to start again.'
      : 'You can start again.'
  return `Waiting for ${makerName(snapshot)} to start again.`
}

/** What the loss of a rank means to this tab; null for other ends, and where nobody knows who it was. */
function lossWords(
  snapshot: Snapshot,
  run: Run,
  { code }: { readonly code: string },
): string | null {
  const [gone] = goneRanks(snapshot)
  // This tab itself: its error says why.
  if (code !== 'peer.lost' || gone === undefined || gone === run.rank) return null
  const when = run.step > 0 ? `at step ${run.step}` : 'before its first step'
  const next = isMaker(snapshot)
    ? 'Start again without it, or once it is back.'
    : `Waiting for ${makerName(snapshot)} to start again.`
  return `Its tab was closed, crashed or lost its connection, and the run ended ${when}. ${next}`
}

function failureTitle(snapshot: Snapshot, run: Run): string {
  const code = run.end?.kind === 'failed' ? run.end.code : ''
  const [gone] = goneRanks(snapshot)
  // Collectives fail in their own words on each rank; who is missing is the same for all.
  if (gone !== undefined && code.startsWith('peer.')) {
    if (gone === run.rank) return 'This tab stood still'
    return `${asSentence(rankName(run, gone))} was lost`
  }
  return failureTexts[code as ErrorCode]?.title ?? 'The run failed'
}
