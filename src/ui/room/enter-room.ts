import { plainName } from '../../peer/room/names.ts'
import { SignalError } from '../../peer/room/refusals.ts'
import { formatFragment, newRoomLink, type RoomLink } from '../../peer/room/secret.ts'
import { givenData } from '../../trainer/settings/config.ts'
import { toHex } from '../../util/env.ts'
import { endFactsOf, messageOf, TabringError, toError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'
import { exportTrace, isTracing } from '../../util/spans.ts'
import type { AdapterFacts } from '../../worker/api.ts'
import type { StartWorker } from '../../worker/page/client.ts'
import { bytesSentIn, RoomMember, type RoomMemberOptions } from '../../worker/page/member.ts'
import type { MemberEvent, RunEnd } from '../../worker/page/member-events.ts'
import { checkpointActs } from '../checkpoints/checkpoint-acts.ts'
import { forgetKept } from '../demo/kept.ts'
import { saveText, saveUrl } from '../parts/save-file.ts'
import { append } from '../parts/series.ts'
import { nameAskedKey, recall, remember } from '../parts/tab-memory.ts'
import { runActs } from '../run/run-acts.ts'
import { queryOf } from '../settings/query.ts'
import type { Acts } from '../state/acts.ts'
import {
  canStart,
  checkedDraft,
  checkedWithout,
  hasMissed,
  isMaker,
  isWatching,
  withTabs,
  withTrust,
} from '../state/room-facts.ts'
import { type Download, newRun } from '../state/run.ts'
import { isRunning } from '../state/run-facts.ts'
import { continued } from '../state/save-facts.ts'
import { readServerFacts } from '../state/server-facts.ts'
import type { Action } from '../state/snapshot.ts'
import type { Store } from '../state/store.ts'
import { troubleOf } from '../state/trouble.ts'
import { askOnceItLasts } from './ask-person.ts'
import { keepName } from './kept-name.ts'
import { tokenFor } from './kept-token.ts'
import { watchTests } from './long-tests.ts'
import type { MoreRanks } from './more-ranks.ts'
import { stopRun } from './stop-run.ts'
import { speedOfTab } from './tab-speed.ts'
import type { Watching } from './watching.ts'

/** From a change of the settings until it is sent to the others; a person may still be typing. units: ms. */
const proposeAfterMs = 150

/** Brings the tab into its room: events of the member become actions, acts of people become calls. */
export function enterRoom(link: RoomLink, store: Store, startWorker: StartWorker): Acts {
  const dispatch = (action: Action) => store.dispatch(action)
  const refused = (text: string) => dispatch({ type: 'refused', text })
  watchTests(store)
  const { experiments, name, transport, ranks } = store.snapshot
  const common: Omit<RoomMemberOptions, 'name'> = {
    experiments,
    startWorker,
    link,
    token: tokenFor,
    roomKey: readRoomKey(),
    transport,
    mode: 'either',
    reconnects: true,
    measures: { speed: speedOfTab() },
    ...(ranks > 1 && { tab: toHex(crypto.getRandomValues(new Uint8Array(4))) }),
  }
  /** The tab's ranks besides the first, where it has more. */
  let more: MoreRanks | undefined
  const takeRunEvent = askOnceItLasts((event, atMs) => {
    dispatch({ type: 'event', event, atMs })
    if (event.event === 'resumed' && isMaker(store.snapshot)) showInAddress()
  })
  const outside = (error: Error) => {
    more?.close()
    dispatch({ type: 'outside', trouble: troubleOf(error) })
  }
  /** Why this tab can compute nothing. */
  let noDevice: Error | undefined
  let isFirstLobby = true
  /** A host that opens its room would have nobody to watch. */
  const takePart = () => {
    if (noDevice) leave(noDevice)
    else if (ranks === 0) {
      member.watch(false)
      refused(
        'This tab is the host, so it takes part with one rank. Open the room in another tab to watch.',
      )
    }
  }
  let watching: Promise<Watching> | undefined
  const withWatching = <T>(act: (watching: Watching) => T): Promise<T> => {
    watching ??= loadPart('Watching', async () => {
      const { Watching } = await import('./watching.ts')
      return new Watching({ store, member, isWatching, hasMissed, newRun, append })
    }).catch((thrown) => {
      watching = undefined
      throw thrown
    })
    return watching.then(act)
  }
  const inform = (act: (watching: Watching) => void) =>
    void withWatching(act).catch((thrown) => refused(messageOf(thrown)))
  const watchIfSo = () => {
    const { snapshot } = store
    if (watching || isWatching(snapshot) || hasMissed(snapshot)) inform((it) => it.roomIs())
  }
  const take = (event: MemberEvent): void => {
    switch (event.type) {
      case 'watchMessage':
        inform((it) => it.take(event.from, event.message))
        break
      case 'lobby': {
        const wasMaker = isMaker(store.snapshot)
        dispatch(event)
        watchIfSo()
        if (!wasMaker && isMaker(store.snapshot)) showInAddress()
        propose()
        if (isFirstLobby && isMaker(store.snapshot)) takePart()
        isFirstLobby = false
        break
      }
      case 'assigned':
        // During the run the others see its settings, which may differ from the form's: the form's are sent again after it.
        proposed = ''
        dispatch({ ...event, startedAtMs: Date.now() })
        break
      case 'event':
        takeRunEvent(event.event, event.atMs)
        break
      case 'reason':
        dispatch(failed('reason', event.error))
        break
      case 'ended':
        dispatch(endAction(event.end))
        watchIfSo()
        propose()
        break
      case 'moved':
        moveTo(event.link, member.follow(event.link)).catch((thrown) =>
          refused(
            `The room has moved to a new link, and this tab is still in the old room. ${troubleOf(thrown).title}. Ask the host, then open the new link.`,
          ),
        )
        break
      case 'dead':
      case 'removed':
        outside(event.error)
        break
      case 'serverLost':
        dispatch({ type: 'serverLost', text: event.error.message })
        break
      case 'serverBack':
        dispatch(event)
        proposed = ''
        propose()
        break
      case 'refused':
        refused(event.error.message)
        break
      default:
        dispatch(event)
    }
  }
  const member = new RoomMember({ ...common, name, on: take })
  const leave = (error: Error) => {
    outside(error)
    member.close()
  }

  const showInAddress = () => {
    const { draft, given, lesson } = store.snapshot
    const query = queryOf(experiments, draft, given, lesson)
    history.replaceState(history.state, '', `${location.pathname}${query}${location.hash}`)
  }

  /** The others see what this tab would start, soon after each change; settings with an error show nothing new. */
  let proposing = 0
  let proposed = ''
  const proposeNow = () => {
    clearTimeout(proposing)
    const { snapshot } = store
    if (!canStart(snapshot)) return
    const { config } = checkedDraft(snapshot)
    const text = JSON.stringify(config)
    if (!config || text === proposed) return
    proposed = text
    member.propose(config)
  }
  const propose = () => {
    clearTimeout(proposing)
    proposing = window.setTimeout(proposeNow, proposeAfterMs)
  }

  const enter = async () => {
    try {
      const adapter = await member.open().catch((thrown): AdapterFacts => {
        if (!(thrown instanceof TabringError && thrown.code === 'gpu.unavailable')) throw thrown
        noDevice = thrown
        return withoutDevice
      })
      dispatch({ type: 'deviceOpened', adapter, noDevice: noDevice?.message })
      const watches = ranks === 0 || adapter === withoutDevice
      if (watches) member.update({ watches })
      await member.join(adapter)
      // With all its ranks: a run that began earlier would leave some out.
      if (ranks > 1 && !watches) {
        const part = await loadPart('the ranks of this tab', () => import('./more-ranks.ts'))
        const { stage, name } = store.snapshot
        if (stage === 'outside') return
        more = new part.MoreRanks(ranks - 1, name, common, refused)
        await more.enter()
      }
      dispatch({ type: 'entered', hasRelay: member.hasRelay })
      propose()
    } catch (thrown) {
      // So that a reload asks again, and counts as no other guess.
      if (thrown instanceof SignalError && thrown.refusal === 'wrong-key') keepRoomKey('')
      leave(toError(thrown))
    }
  }
  void enter()
  void readServerFacts().then((facts) => facts && dispatch({ type: 'server', facts }))
  document.addEventListener('visibilitychange', () => {
    const { hidden } = document
    member.update({ hidden })
    more?.update({ hidden })
  })

  /** The page in another room, once its first rank is there; what was chosen on the way is proposed after it. */
  const moveTo = async (to: RoomLink, moved: Promise<void>) => {
    dispatch({ type: 'moving', isMoving: true })
    try {
      await moved
      const fragment = formatFragment(to)
      const { origin, pathname, search } = location
      history.replaceState(null, '', `${pathname}${search}${fragment}`)
      dispatch({ type: 'moved', invite: `${origin}${pathname}${fragment}` })
      await more?.move(to)
      proposed = ''
    } finally {
      dispatch({ type: 'moving', isMoving: false })
      propose()
    }
  }

  const startWithout = (ids: readonly string[]) => {
    const gone = withTabs(store.snapshot, ids)
    const { config } = checkedWithout(store.snapshot, ids)
    if (!config || !canStart(store.snapshot)) return
    // The server takes one after the other: who is removed has no part in the start.
    for (const { id } of gone) member.remove(id)
    member.start(withTrust(config, store.snapshot))
  }

  const set: Acts['set'] = (key, value) => {
    const { experiments, draft, run } = store.snapshot
    const next = typeof value === 'string' ? value : value(draft[key])
    const take = () => {
      dispatch({ type: 'setting', key, value: next })
      showInAddress()
      propose()
    }
    const config = isRunning(store.snapshot) && run?.config
    if (!config) return take()
    return loadPart('the changes', () => import('../settings/live-value.ts'))
      .then(({ liveValue }) => member.change(key, liveValue(experiments, draft, config, key, next)))
      .then(take, (thrown) => refused(messageOf(thrown)))
  }

  return {
    set,
    rename(text) {
      const chosen = plainName(text)
      if (!chosen) return
      keepName(chosen)
      remember(nameAskedKey, 'yes')
      dispatch({ type: 'named', name: chosen })
      member.update({ name: chosen })
      more?.rename(chosen)
    },
    start: () => startWithout([]),
    startWithout,
    continueRun() {
      const found = continued(store.snapshot)
      if (found) member.start(found.config)
    },
    remove(id) {
      for (const one of withTabs(store.snapshot, [id])) member.remove(one.id)
    },
    removeAndLock(id) {
      if (store.snapshot.isMoving) return
      const to = newRoomLink()
      const ids = withTabs(store.snapshot, [id]).map((one) => one.id)
      moveTo(to, member.moveWithout(ids, to)).catch((thrown) =>
        refused(`This tab is still in the old room. ${messageOf(thrown)}`),
      )
    },
    letIn: (id, isLetIn) => member.letIn(id, isLetIn),
    handOver(id) {
      // The next maker begins with what was chosen last.
      proposeNow()
      member.handOver(id)
    },
    reset() {
      if (!canStart(store.snapshot)) return
      forgetKept()
      dispatch({ type: 'reset' })
      member.forget()
      more?.forget()
      showInAddress()
      propose()
    },
    stop: () => stopRun({ store, member, after: (ms, callback) => setTimeout(callback, ms) }),
    pause: () => member.pause(),
    goOn() {
      dispatch({ type: 'stepping', isStepping: false })
      member.goOn()
    },
    continueWithout() {
      member.continueWithout()
    },
    oneStep() {
      if (store.snapshot.run?.isStepping) return
      dispatch({ type: 'stepping', isStepping: true })
      member.oneStep()
    },
    watch(watches) {
      member.watch(watches)
      more?.watch(watches)
    },
    async query(name, input, rank = member.rank ?? 0, whose) {
      if (store.snapshot.run?.isWatched) return withWatching((it) => it.query(name, input))
      const asked = rank === member.rank ? member : more?.at(rank)
      if (asked) return asked.compute.query(name, input, whose)
      throw new Error(`Rank ${rank} of this tab has left the room. Choose another rank.`)
    },
    give(demo, bytes, text = null, samples) {
      member.give(demo, bytes)
      dispatch(bytes ? { type: 'given', demo, text, samples } : { type: 'givenBack', demo })
      // A file may have been read for long: by now another demo may be on show, or a run be on.
      const { snapshot } = store
      if (bytes && isMaker(snapshot) && !isRunning(snapshot) && snapshot.draft.demo === demo)
        set('data', givenData)
      else if (isMaker(snapshot)) showInAddress()
    },
    damagedInLink: (demo) => dispatch({ type: 'damagedInLink', demo }),
    async download() {
      const { run } = store.snapshot
      const report = (download: Download) =>
        dispatch({ type: 'download', runId: run?.id ?? '', download })
      report({ is: 'busy' })
      try {
        const url = run?.isWatched
          ? await withWatching((it) => it.modelFile())
          : await member.compute.exportParameters()
        saveUrl(url, `tabring-${run?.config?.model ?? 'model'}-${run?.step ?? 0}-steps.safetensors`)
        report({ is: 'done' })
      } catch (thrown) {
        report({ is: 'failed', text: messageOf(thrown) })
      }
    },
    saveTrace: isTracing()
      ? async () => {
          const trace = exportTrace(await member.compute.traceEvents())
          const name = `tabring-rank-${store.snapshot.run?.rank ?? 0}.trace.json`
          saveText(trace, 'application/json', name)
        }
      : null,
    ...runActs(store),
    ...checkpointActs(store, member.compute, set),
    reenter: () => location.reload(),
    giveRoomKey(roomKey) {
      const isKept = keepRoomKey(roomKey)
      if (isKept) location.reload()
      return isKept
    },
  }
}

/** Stands for the device of a tab that can compute nothing. */
const withoutDevice = { description: 'computes nothing' } as AdapterFacts

const endAction = (end: RunEnd): Action =>
  end.ok
    ? { type: 'finished', result: end.result, bytesSent: bytesSentIn(end) }
    : failed('failed', end.error)

const failed = (type: 'failed' | 'reason', error: Error): Action => {
  const code = 'code' in error ? String(error.code) : ''
  return { type, code, text: error.message, ...endFactsOf(error) }
}

const key = 'tabring-room-key'

/** The room key of the server that a person gave in this tab; undefined for none. */
const readRoomKey = (): string | undefined => recall(key) || undefined

/** Keeps it for as long as the tab is open, and returns whether that could be done. Empty: forgets it. */
const keepRoomKey = (roomKey: string): boolean => remember(key, roomKey)
