import { CopyButton } from './copy-button.tsx'

/** The address of what a page shows, to be copied. */
export function ShareLink({ label, link }: { label: string; link: string }) {
  return (
    <div class="share">
      <label for="link">{label}</label>
      <div class="field-row">
        <input id="link" class="mono" type="text" readOnly value={link} />
        <CopyButton text={link} label="Copy link" field="link" />
      </div>
    </div>
  )
}
