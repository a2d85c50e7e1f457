/** Data sets, their files, loading and transforms, as torch.utils.data and torchvision. */

export {
  type BytePairEncoding,
  type BytePairTokenizer,
  bytePairTokenizer,
  type EncodeOptions,
} from '../data/byte-pairs.ts'
export type { ByteSource } from '../data/byte-source.ts'
export {
  type Batch,
  batchSizeOf,
  type CollateOptions,
  defaultCollate,
  type FieldDTypes,
  padBatch,
} from '../data/collate.ts'
export { type CsvColumns, type CsvOptions, CsvTable, readCsv } from '../data/csv.ts'
export type { CsvNumbers } from '../data/csv-numbers.ts'
export { ConcatDataset, randomSplit, Subset, TensorDataset } from '../data/datasets.ts'
export type {
  DatasetDescription,
  FileArray,
  FileNumbers,
  HostNumbers,
  HostTensor,
  TransformDescription,
} from '../data/descriptions.ts'
export {
  type DownloadOptions,
  type DownloadProgress,
  download,
  forgetDownload,
} from '../data/download.ts'
export {
  type FileFolder,
  type FileStore,
  memoryFileStore,
  opfsFileStore,
  type PartFolder,
} from '../data/file-store.ts'
export {
  type FileSource,
  type FolderFile,
  type FolderListing,
  listDirectory,
  listDropped,
  listEntries,
  listServed,
} from '../data/folder.ts'
export { httpFolder } from '../data/http-folder.ts'
export { type IdxArray, type IdxNumbers, readIdx } from '../data/idx.ts'
export {
  IdxDataset,
  type IdxDatasetOptions,
  type IdxSample,
  idxDataset,
} from '../data/idx-dataset.ts'
export { decodeImage } from '../data/image/decode.ts'
export type { PixelImage } from '../data/image/pixels.ts'
export {
  centerCrop,
  compose,
  normalize,
  randomHorizontalFlip,
  randomResizedCrop,
  resize,
  type Size as ImageSize,
  type Transform,
  toTensor,
} from '../data/image/transforms.ts'
export { ImageFolder, type ImageSample } from '../data/image-folder.ts'
export type { LossChoice } from '../data/language/learned-tokens.ts'
export {
  type ChatMessage,
  type ChatOptions,
  PretrainedTokenizer,
  readTokenizer,
  type TokenizerFiles,
} from '../data/language/pretrained-tokenizer.ts'
export { TextDataset, type TextSample } from '../data/language/text-dataset.ts'
export type { TextRows } from '../data/language/text-rows.ts'
export {
  readTextTable,
  type TextRow,
  type TextTable,
  type TextTableOptions,
} from '../data/language/text-table.ts'
export {
  type TextOptions,
  type TextReport,
  type TokenizedTexts,
  tokenizeTexts,
} from '../data/language/tokenize-texts.ts'
export {
  type BatchPinner,
  DataLoader,
  type DataLoaderOptions,
  type Sampler,
} from '../data/loader/data-loader.ts'
export type { DataLoaderState } from '../data/loader/loader-state.ts'
export { type ServeOptions, serveSamples } from '../data/loader/serve-samples.ts'
export { filesFolder, type ModelFolder } from '../data/model-folder.ts'
export { type NpzOptions, readNpy, readNpz } from '../data/npy.ts'
export {
  DistributedSampler,
  type DistributedSamplerOptions,
  type Padding as SamplerPadding,
} from '../data/sampler.ts'
export {
  type Dataset,
  hostTensor,
  type NestedNumbers,
  type NumberArray,
  randomStreamOf,
  type Sample,
  type SampleKey,
  type SampleValue,
} from '../data/samples.ts'
export { type BatchShare, batchShares } from '../data/shares.ts'
export { CharTokenizer, TokenDataset, type Tokenizer } from '../data/text.ts'
export { type UrlFolderOptions, urlFolder } from '../data/url-folder.ts'
export { type StageableArray, type Staged, StagedTensor, StagedUploads } from '../gpu/staging.ts'
export type { RandomStream } from '../util/random.ts'
