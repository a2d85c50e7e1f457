import { useRef } from 'preact/hooks'
import { scoreOf } from '../../trainer/settings/demo-meta.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import type { ShelvedCheckpoint } from '../../worker/api.ts'
import { formatBytes, formatCount, formatMany, formatMetric } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import { timeWords } from '../parts/time-words.ts'
import { metaOfDraft } from '../settings/list.ts'
import type { Acts } from '../state/acts.ts'
import { isMaker } from '../state/room-facts.ts'
import { isRunning } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** The checkpoints in this browser's private files: continue from one, download, delete, or bring a file. */
export function CheckpointList({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { checkpoints, checkpointNote, stage } = snapshot
  const chooser = useRef<HTMLInputElement>(null)
  if (stage !== 'inside' || !checkpoints) return null
  const mayChoose = isMaker(snapshot) && !isRunning(snapshot)
  if (checkpoints.length === 0 && !mayChoose && !checkpointNote) return null
  return (
    <Panel
      id="checkpoints"
      title="Checkpoints in this browser"
      aside={checkpoints.length > 0 ? String(checkpoints.length) : ''}
      folds={{
        words:
          checkpoints.length > 0
            ? formatMany(checkpoints.length, 'checkpoint')
            : 'No checkpoints yet',
        mustOpen: checkpointNote !== null,
      }}
    >
      {checkpoints.length > 0 ? (
        <ul class="checkpoints">
          {checkpoints.map((file) => (
            <Checkpoint
              key={`${file.place}/${file.name}`}
              experiments={snapshot.experiments}
              file={file}
              acts={acts}
              mayChoose={mayChoose}
            />
          ))}
        </ul>
      ) : (
        <p class="quiet">
          None yet. The host’s runs are saved here automatically; “Save checkpoint” saves one in any
          tab.
        </p>
      )}
      {mayChoose && (
        <p class="acts">
          <button type="button" class="small" onClick={() => chooser.current?.click()}>
            Resume from a file…
          </button>
          <input
            ref={chooser}
            class="unseen"
            type="file"
            accept=".safetensors"
            aria-label="Checkpoint file"
            tabIndex={-1}
            onChange={(event) => {
              const [file] = event.currentTarget.files ?? []
              if (file) acts.uploadCheckpoint(file)
              event.currentTarget.value = ''
            }}
          />
        </p>
      )}
      <p role="status" class={checkpointNote?.isError ? 'error' : 'quiet'}>
        {checkpointNote?.text}
      </p>
    </Panel>
  )
}

interface CheckpointProps {
  experiments: Experiments
  file: ShelvedCheckpoint
  acts: Acts
  mayChoose: boolean
}

function Checkpoint({ experiments, file, acts, mayChoose }: CheckpointProps) {
  const { place, name, step, sizeBytes, isBest, isLatest, isKept, savedAtMs, about, score } = file
  const isFile = name.startsWith('upload')
  const model = place.replace(/^page-/, '').replaceAll('-', ' ')
  const title = `${model}, step ${formatCount(step)}`
  const time = savedAtMs === null ? '' : timeWords(savedAtMs, Date.now())
  const { metric } = metaOfDraft(experiments, { demo: model.split(' ')[0] })
  const test = score === null ? '' : `test ${formatMetric(metric, scoreOf(metric, score))}`
  const facts = [test, about, formatBytes(sizeBytes), time].filter((one) => one !== '')
  // Those of several runs are often of the same step.
  const whole = [title, about, time].filter((one) => one !== '').join(', ')
  return (
    <li>
      <span class="who">
        <strong title={name}>{title}</strong>
        <span class="badges">
          {isFile && <span class="badge">file</span>}
          {isKept && !isFile && <span class="badge">kept</span>}
          {isLatest && <span class="badge">latest</span>}
          {isBest && <span class="badge">best</span>}
        </span>
      </span>
      <span class="adapter">{facts.join(' · ')}</span>
      <span class="checkpoint-acts">
        {mayChoose && (
          <button
            type="button"
            class="small"
            aria-label={`Resume from ${whole}`}
            onClick={() => acts.goOnFrom(file)}
          >
            Resume
          </button>
        )}
        <button
          type="button"
          class="small"
          aria-label={`Download ${whole}`}
          onClick={() => acts.downloadCheckpoint(file)}
        >
          ↓
        </button>
        <button
          type="button"
          class="small"
          aria-label={`Delete ${whole}`}
          onClick={() => acts.deleteCheckpoint(file)}
        >
          ✕
        </button>
      </span>
    </li>
  )
}
