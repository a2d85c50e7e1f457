/** Mixed precision, as torch.amp. */

export { type AutocastOptions, autocast } from '../graph/autocast.ts'
export { GradScaler } from './grad-scaler.ts'
