interface ProgressBarProps {
  /** What is counted, for screen readers. */
  readonly label: string
  readonly done: number
  /** 0 while it is not known. */
  readonly of: number
}

/** How much of `of` is done. */
export const ProgressBar = ({ label, done, of }: ProgressBarProps) => (
  <div
    class="bar"
    role="progressbar"
    aria-label={label}
    aria-valuemin={0}
    aria-valuemax={of}
    aria-valuenow={done}
  >
    <div style={{ width: `${(100 * done) / Math.max(1, of)}%` }} />
  </div>
)
