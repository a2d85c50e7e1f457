import { meshLimit } from '../peer/edges.ts'
import { givenData } from '../train/config.ts'
import { formatBytes, formatMany, formatMetric, formatSeconds } from './format.ts'
import {
  goneRanks,
  isMaker,
  isRunning,
  isWaitingForNext,
  makerName,
  type Phase,
  type Run,
  type Snapshot,
  stoppedBy,
  tabCount,
} from './state.ts'

/** Where the tab stands, in a title and one sentence. */
export interface Status {
  readonly tone: 'idle' | 'busy' | 'good' | 'bad'
  readonly title: string
  readonly text: string
}

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
    return { tone: 'busy', title: 'Opening the GPU', text: 'A compute worker asks for a device.' }
  }
  if (stage === 'entering' || !lobby) {
    return { tone: 'busy', title: 'Entering the room', text: 'The server checks the key.' }
  }
  if (run && isRunning(snapshot)) return runningStatus(snapshot, run)
  if (serverLost !== null) {
    return {
      tone: 'bad',
      title: 'The signaling server is gone',
      text: 'Nothing can start without it. See that npm start still runs, then reload this page to enter the room again.',
    }
  }
  const next = whatNext(snapshot)
  if (isWaitingForNext(snapshot)) {
    return {
      tone: 'idle',
      title: 'A run is under way',
      text: `This tab came during it and gets a rank in the next one, once ${makerName(snapshot)} starts that.`,
    }
  }
  if (run?.end?.kind === 'finished') {
    const { metric, value, seconds } = run.end.result
    const reached =
      metric.unit === 'share'
        ? `${formatMetric(metric, value)} of the test samples are right`
        : `Test ${metric.name} ${formatMetric(metric, value)}`
    return {
      tone: 'good',
      title: 'Finished',
      text: `${reached} after ${formatSeconds(seconds)}. ${next}`,
    }
  }
  if (run?.end?.kind === 'stopped') {
    return {
      tone: 'idle',
      title: 'Stopped',
      text: `${stoppedBy(run.end.text)} ended the run at step ${run.step}. ${next}`,
    }
  }
  if (run?.end) return { tone: 'bad', title: failureTitle(snapshot, run), text: run.end.text }
  return lobbyStatus(snapshot)
}

function runningStatus(snapshot: Snapshot, run: Run): Status {
  const ranks = formatMany(run.worldSize, 'rank')
  const say = (text: string): Status => ({ tone: 'busy', title: phaseTitles[run.phase], text })
  if (run.isStopping) return { tone: 'busy', title: 'Stopping', text: 'All ranks are being told.' }
  if (run.paused) {
    const by = run.paused.by.map((rank) => run.members[rank]?.name ?? `rank ${rank}`).join(', ')
    return {
      tone: 'idle',
      title: 'Paused',
      text: `${by} asked for it: all ranks stand behind step ${run.paused.step}, and keep their links.`,
    }
  }
  switch (run.phase) {
    case 'connect':
      return say(
        run.worldSize === 1
          ? 'Alone: no links are needed.'
          : `${ranks} are linked, ${run.worldSize <= meshLimit ? 'each to all others' : 'each to its neighbours in the ring'}. ${linkingWords(run)} Who does not answer within 20 s counts as unreachable.`,
      )
    case 'load':
      return say(loadingWords(run))
    case 'broadcast':
      return say('Rank 0 sends the first parameters, so that all begin with the same.')
    case 'compile':
      return say('The step is recorded once; shaders and pipelines are built.')
    default: {
      const lost =
        snapshot.serverLost === null
          ? ''
          : ' The signaling server is gone; the run goes on without it.'
      if (run.phase === 'evaluate') return say(`The ranks share the test samples.${lost}`)
      const batch = `${run.config?.batchSize ?? 0} samples`
      const how =
        run.worldSize === 1
          ? `This tab takes all ${batch} of every step.`
          : `${ranks} share the ${batch} of every step.`
      return say(`${how}${resumedWords(run)}${lost}`)
    }
  }
}

/** Which of this rank's links are up, and whom the others wait for. */
function linkingWords({ peers, ways, members }: Run): string {
  const missing = peers.filter((rank) => !(rank in ways))
  if (missing.length === 0) return 'This tab has its links; other ranks wait for theirs.'
  const names = missing.slice(0, 3).map((rank) => `rank ${rank} (${members[rank].name})`)
  const more = missing.length > names.length ? ` and ${missing.length - names.length} more` : ''
  return `This tab waits for ${names.join(', ')}${more}.`
}

/** Where the data comes from, and how much of it has come. */
function loadingWords({ config, given, worldSize }: Run): string {
  if (config?.data !== givenData) return 'Every rank makes or fetches the data.'
  if (worldSize === 1) return 'The data is what this tab was given.'
  const { doneBytes, totalBytes } = given ?? { doneBytes: 0, totalBytes: Number.NaN }
  if (doneBytes >= totalBytes)
    return 'All ranks have the data that one of them was given, and read it.'
  const sent = given ? `: ${formatBytes(doneBytes)} of ${formatBytes(totalBytes)}` : ''
  return `The data that one rank was given goes to all${sent}.`
}

/** Which checkpoint a run goes on from, and by what its bits are others than the saved run's. */
function resumedWords({ resumed }: Run): string {
  if (!resumed) return ''
  const { step, differences } = resumed
  const others =
    differences.length > 0
      ? ` No longer bit for bit the run that was saved: ${differences.join('; ')}.`
      : ''
  return ` It went on from the checkpoint of step ${step}.${others}`
}

function lobbyStatus(snapshot: Snapshot): Status {
  const count = snapshot.lobby!.members.length
  const tabs = tabCount(snapshot.lobby!)
  if (!isMaker(snapshot)) {
    return {
      tone: 'idle',
      title: `Waiting for ${makerName(snapshot)} to start`,
      text: `${formatMany(tabs, 'tab')} in the room. Keep this one open.`,
    }
  }
  if (tabs === 1) {
    return {
      tone: 'idle',
      title: 'Alone in the room',
      text:
        count === 1
          ? 'Open the link in more tabs, each becomes a rank; or start now and train on this tab alone.'
          : `Open the link in more tabs; or start now and train on the ${count} ranks of this tab.`,
    }
  }
  return {
    tone: 'idle',
    title: `Ready with ${formatMany(count, 'rank')}`,
    text: 'Start once everyone is here; who comes later waits for the next run.',
  }
}

/** Who can do what after a run. */
export function whatNext(snapshot: Snapshot): string {
  return isMaker(snapshot)
    ? 'You can start again.'
    : `Waiting for ${makerName(snapshot)} to start again.`
}

const failureTitles: Record<string, string> = {
  'peer.unreachable': 'A rank cannot be reached',
  'peer.lost': 'A rank was lost',
  'peer.timeout': 'A rank stopped answering',
  'gpu.lost': 'The GPU device was lost',
  'train.nan': 'The loss is not a number',
  'train.diverged': 'The replicas differ',
  'data.missing': 'The data is not there',
  'data.malformed': 'The data cannot be read',
  'data.checksum': 'The data is not what was asked for',
  'data.interrupted': 'The download broke off',
  'worker.dead': 'The compute worker ended',
}

function failureTitle(snapshot: Snapshot, run: Run): string {
  const code = run.end?.kind === 'failed' ? run.end.code : ''
  const [gone] = goneRanks(snapshot)
  // Collectives fail in their own words on each rank; who is missing is the same for all.
  if (gone !== undefined && code.startsWith('peer.')) {
    return `Rank ${gone} (${run.members[gone].name}) was lost`
  }
  return failureTitles[code] ?? 'The run failed'
}
