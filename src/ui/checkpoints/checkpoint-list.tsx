import { useRef } from 'preact/hooks'
import type { ShelvedCheckpoint } from '../../worker/api.ts'
import type { Acts } from '../acts.ts'
import { formatBytes, formatCount } from '../format.ts'
import { Panel } from '../panel.tsx'
import { isMaker, isRunning, type Snapshot } from '../state.ts'

/** The checkpoints in this browser's private files: go on from one, download, delete, or bring a file. */
export function CheckpointList({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { checkpoints, checkpointNote, stage } = snapshot
  const chooser = useRef<HTMLInputElement>(null)
  if (stage !== 'inside' || !checkpoints) return null
  const mayChoose = isMaker(snapshot) && !isRunning(snapshot)
  if (checkpoints.length === 0 && !mayChoose) return null
  return (
    <Panel
      id="checkpoints"
      title="Checkpoints in this browser"
      aside={checkpoints.length > 0 ? String(checkpoints.length) : ''}
    >
      {checkpoints.length > 0 ? (
        <ul class="checkpoints">
          {checkpoints.map((file) => (
            <Checkpoint
              key={`${file.place}/${file.name}`}
              file={file}
              acts={acts}
              mayChoose={mayChoose}
            />
          ))}
        </ul>
      ) : (
        <p class="quiet">
          None yet. “Checkpoint every” in the settings saves some, of the run whose rank 0 this tab
          is.
        </p>
      )}
      {mayChoose && (
        <p class="acts">
          <button type="button" class="small" onClick={() => chooser.current?.click()}>
            Go on from a file…
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
  file: ShelvedCheckpoint
  acts: Acts
  mayChoose: boolean
}

function Checkpoint({ file, acts, mayChoose }: CheckpointProps) {
  const { place, name, step, sizeBytes, isBest, isLatest } = file
  const model = place.replace(/^page-/, '').replaceAll('-', ' ')
  const title = `${model}, step ${formatCount(step)}`
  return (
    <li>
      <span class="who">
        <strong title={name}>{title}</strong>
        <span class="badges">
          {name.startsWith('upload') && <span class="badge">file</span>}
          {isLatest && <span class="badge">latest</span>}
          {isBest && <span class="badge">best</span>}
        </span>
        <span class="adapter">{formatBytes(sizeBytes)}</span>
      </span>
      <span class="checkpoint-acts">
        {mayChoose && (
          <button
            type="button"
            class="small"
            aria-label={`Go on from ${title}`}
            onClick={() => acts.goOnFrom(file)}
          >
            Go on
          </button>
        )}
        <button
          type="button"
          class="small"
          aria-label={`Download ${title}`}
          onClick={() => acts.downloadCheckpoint(file)}
        >
          ↓
        </button>
        <button
          type="button"
          class="small"
          aria-label={`Delete ${title}`}
          onClick={() => acts.deleteCheckpoint(file)}
        >
          ✕
        </button>
      </span>
    </li>
  )
}
