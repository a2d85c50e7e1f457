/** Mixed precision, as torch.amp. */

export { type AutocastOptions, autocast } from '../graph/trace/autocast.ts'
export { GradScaler } from './grad-scaler.ts'
