import type { RoomLink } from '../peer/secret.ts'
import { givenData } from '../train/config.ts'
import { toHex } from '../util/env.ts'
import { messageOf } from '../util/errors.ts'
import { exportTrace, isTracing } from '../util/spans.ts'
import { bytesSentIn, RoomMember, type RoomMemberOptions, type RunEnd } from '../worker/member.ts'
import type { Acts } from './acts.ts'
import { plainName } from './browser-name.ts'
import { checkpointActs } from './checkpoints/checkpoint-acts.ts'
import { chooseCpu, chosenDevice } from './device-choice.ts'
import { keepName } from './kept-name.ts'
import { MoreRanks, speedOfTab } from './more-ranks.ts'
import { runActs } from './runs/run-acts.ts'
import { saveText, saveUrl } from './save-file.ts'
import { readServerFacts } from './server-facts.ts'
import { checkDraft, queryOf } from './settings.ts'
import { type Action, canStart, stopReason } from './state.ts'
import type { Store } from './store.ts'
import { troubleOf } from './trouble.ts'

/** Brings the tab into its room: what the member tells becomes actions, what people do becomes calls. */
export function enterRoom(link: RoomLink, store: Store): Acts {
  const { dispatch } = bound(store)
  const { name, transport, ranks } = store.snapshot
  const common: Omit<RoomMemberOptions, 'name'> = {
    link,
    transport,
    mode: 'either',
    measures: { speed: speedOfTab() },
    ...(ranks > 1 && { tab: toHex(crypto.getRandomValues(new Uint8Array(4))) }),
  }
  const more = new MoreRanks(ranks - 1, name, common, (text) => dispatch({ type: 'refused', text }))
  const member = new RoomMember({
    ...common,
    name,
    onLobby: (lobby, ownId) => dispatch({ type: 'lobby', lobby, ownId }),
    onAssigned: (assignment) => dispatch({ type: 'assigned', assignment, startedAtMs: Date.now() }),
    onLinked: (peerRank, kind) => dispatch({ type: 'linked', peerRank, kind }),
    onConfig: (config) => dispatch({ type: 'config', config }),
    onEvent: (event, atMs) => dispatch({ type: 'event', event, atMs }),
    onEnd: (end) => {
      for (const action of endActions(end)) dispatch(action)
    },
    onDead: (error) => {
      more.close()
      dispatch({ type: 'outside', trouble: troubleOf(error) })
    },
    onServerLost: (error) => dispatch({ type: 'serverLost', text: error.message }),
    onRefused: (error) => dispatch({ type: 'refused', text: error.message }),
  })

  const enter = async () => {
    try {
      const adapter = await member.open(chosenDevice())
      dispatch({ type: 'deviceOpened', adapter })
      await member.join(adapter)
      // With all its ranks: a run that began earlier would leave some out.
      await more.enter(chosenDevice())
      dispatch({ type: 'entered', hasRelay: member.hasRelay })
    } catch (thrown) {
      dispatch({ type: 'outside', trouble: troubleOf(thrown) })
      member.close()
      more.close()
    }
  }
  void enter()
  void readServerFacts().then((facts) => dispatch({ type: 'server', facts }))
  document.addEventListener('visibilitychange', () => {
    const { hidden } = document
    member.update({ hidden })
    more.update({ hidden })
  })

  const set: Acts['set'] = (key, value) => {
    dispatch({ type: 'setting', key, value })
    const { draft } = store.snapshot
    history.replaceState(null, '', `${location.pathname}${queryOf(draft)}${location.hash}`)
  }

  return {
    set,
    rename(text) {
      const chosen = plainName(text)
      if (!chosen) return
      keepName(chosen)
      dispatch({ type: 'named', name: chosen })
      member.update({ name: chosen })
      more.rename(chosen)
    },
    start() {
      const { draft, lobby } = store.snapshot
      const { config } = checkDraft(draft, lobby?.members.length)
      if (config && canStart(store.snapshot)) member.start(config)
    },
    stop() {
      dispatch({ type: 'stopping' })
      member.stop(stopReason(store.snapshot.name))
    },
    pause: () => member.pause(),
    goOn: () => member.goOn(),
    look: (name, input) => member.compute.look(name, input),
    give(bytes) {
      member.give(bytes)
      set('data', givenData)
    },
    async download() {
      const { run } = store.snapshot
      dispatch({ type: 'download', download: { is: 'busy' } })
      try {
        const url = await member.compute.exportParameters()
        saveUrl(url, `tabring-${run?.config?.model ?? 'model'}-${run?.step ?? 0}-steps.safetensors`)
        dispatch({ type: 'download', download: { is: 'done' } })
      } catch (thrown) {
        dispatch({ type: 'download', download: { is: 'failed', text: messageOf(thrown) } })
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
    useCpu: chooseCpu,
  }
}

function endActions(end: RunEnd): Action[] {
  if (end.ok) {
    return [{ type: 'finished', result: end.result, bytesSent: bytesSentIn(end) }]
  }
  const code = 'code' in end.error ? String(end.error.code) : ''
  return [{ type: 'failed', code, text: end.error.message }]
}

const bound = (store: Store) => ({ dispatch: (action: Action) => store.dispatch(action) })
