import { stepsPerEpoch } from '../../data/shares.ts'
import type { SavedFile } from '../../trainer/saves/save-requests.ts'
import { type TrainConfig, totalStepsOf } from '../../trainer/settings/config.ts'
import { messageOf, TabringError } from '../../util/errors.ts'
import type { CheckpointSettings, ComputeApi } from '../../worker/api.ts'
import { saveUrl } from '../parts/save-file.ts'
import { fileWords, whyUnsaved } from '../settings/checkpoint-words.ts'
import { type SettingKey, settings } from '../settings/list.ts'
import type { Acts } from '../state/acts.ts'
import { checkedDraft } from '../state/room-facts.ts'
import type { Saving } from '../state/run.ts'
import type { Store } from '../state/store.ts'

/** The texts of the form that continue a saved run. */
function draftFor({ name, config }: CheckpointSettings): [SettingKey, string][] {
  const saved = settings
    .filter(({ onResume }) => onResume !== 'own')
    .map(({ key }): [SettingKey, string] => [key, String(config[key as keyof TrainConfig] ?? '')])
  return [...saved, ['resume', name]]
}

/** Where the form's settings end a run no later than at what was saved: the setting that lets it train for as long again. */
export function longerThan(
  { step, samples }: CheckpointSettings,
  config: TrainConfig,
): ['steps' | 'epochs', string] | null {
  if (totalStepsOf(config, samples) > step) return null
  if (config.steps) return ['steps', String(step + config.steps)]
  const done = Math.ceil(step / stepsPerEpoch(samples, config.batchSize))
  return ['epochs', String(done + config.epochs)]
}

/** What people do with the checkpoints of this browser. `set` changes a setting, as the form does. */
export function checkpointActs(
  store: Store,
  compute: ComputeApi,
  set: Acts['set'],
): Pick<
  Acts,
  'save' | 'goOnFrom' | 'downloadCheckpoint' | 'deleteCheckpoint' | 'uploadCheckpoint'
> {
  const note = (text: string, isError = false) =>
    store.dispatch({ type: 'checkpointNote', text, isError })
  const refresh = async () => {
    store.dispatch({ type: 'checkpoints', files: await compute.checkpoints() })
  }
  const attempt = async (work: () => Promise<string>) => {
    try {
      note(await work())
    } catch (thrown) {
      if (!(thrown instanceof TabringError && thrown.code === 'data.missing')) {
        note(messageOf(thrown), true)
        return
      }
      // Tabs of one browser share the list, and each lets its oldest files go.
      await refresh().catch(() => undefined)
      note(
        'That file is gone: this or another tab replaced it with a newer one. Choose again.',
        true,
      )
    }
  }
  // They change when this tab is in the room, when one was saved, and when a run is over.
  let stage = store.snapshot.stage
  let saved = store.snapshot.run?.saved
  let end = store.snapshot.run?.end
  store.onChange((snapshot) => {
    const { run } = snapshot
    const savedNow = run?.saved
    if (snapshot.stage === stage && savedNow === saved && run?.end === end) return
    stage = snapshot.stage
    saved = savedNow
    end = run?.end
    if (stage === 'inside') refresh().catch((thrown) => note(messageOf(thrown), true))
  })
  const take = (found: CheckpointSettings) => {
    for (const [key, value] of draftFor(found)) {
      // A demo that is chosen brings all its own settings: how far to go would be lost.
      if (store.snapshot.draft[key] !== value) set(key, value)
    }
    const { parseTrainConfig } = store.snapshot.experiments
    const longer = longerThan(found, parseTrainConfig(checkedDraft(store.snapshot).known))
    if (longer) set(...longer)
    const further = longer
      ? ` That run ended there, so ${longer[0] === 'steps' ? 'Steps' : 'Epochs'} is now ${longer[1]}; change it as you like.`
      : ''
    return `Start resumes from step ${found.step}, with the settings of that run. Steps and epochs count from its beginning.${further}`
  }
  return {
    async save() {
      const runId = store.snapshot.run?.id ?? ''
      const report = (saving: Saving, file?: SavedFile) =>
        store.dispatch({ type: 'saving', runId, saving, file })
      report({ is: 'busy' })
      try {
        const file = await compute.save()
        report({ is: 'done', step: file.step }, file)
      } catch (thrown) {
        const code = thrown instanceof TabringError ? thrown.code : ''
        const text = whyUnsaved(code, messageOf(thrown))
        report({ is: 'failed', text })
      }
    },
    goOnFrom: ({ place, name }) =>
      void attempt(async () => take(await compute.checkpointSettings(place, name))),
    downloadCheckpoint: ({ place, name }) =>
      void attempt(async () => {
        saveUrl(await compute.readCheckpoint(place, name), `tabring-${place}-${name}`)
        return `Saved ${name}.`
      }),
    deleteCheckpoint: (file) =>
      void attempt(async () => {
        const { place, name } = file
        await compute.removeCheckpoint(place, name)
        store.dispatch({ type: 'checkpointDeleted', file })
        await refresh()
        return `Deleted ${name}.`
      }),
    uploadCheckpoint: (file) =>
      void attempt(async () => {
        const found = await compute.addCheckpoint(file)
        if (found === 'weights' || found === 'other') throw new Error(fileWords(file.name, found))
        await refresh()
        return take(found)
      }),
  }
}
