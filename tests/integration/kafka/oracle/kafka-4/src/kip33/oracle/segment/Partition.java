package kip33.oracle.segment;

import java.io.File;
import java.io.IOException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/** The surroundings recovery needs: fresh producer state and a fresh leader epoch cache. */
final class Partition implements AutoCloseable {
    private static final TopicPartition NAME = new TopicPartition("oracle", 0);
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 300000;
    private static final int PRODUCER_ID_EXPIRATION_MS = 86400000;

    private final SegmentSettings settings;
    private final LogSegment segment;

    Partition(SegmentSettings settings) throws IOException {
        this.settings = settings;
        this.segment = LogSegment.open(
            settings.directory(), settings.baseOffset(), new LogConfig(settings.topicConfig()),
            Time.SYSTEM, true, 0, false, "");
    }

    int recover() throws IOException {
        return segment.recover(producerState(), leaderEpochs());
    }

    /** Whether the segment has an offset that its index files cannot hold. */
    boolean hasOverflow() throws IOException {
        return segment.hasOverflow();
    }

    void append(long lastOffset, MemoryRecords records) throws IOException {
        segment.append(lastOffset, records);
    }

    void roll() throws IOException {
        segment.onBecomeInactiveSegment();
    }

    private ProducerStateManager producerState() throws IOException {
        return new ProducerStateManager(
            NAME, settings.directory(), MAX_TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, false), Time.SYSTEM);
    }

    private LeaderEpochFileCache leaderEpochs() throws IOException {
        File checkpoint = LeaderEpochCheckpointFile.newFile(settings.directory());
        if (checkpoint.exists() && !checkpoint.delete())
            throw new IOException("cannot delete " + checkpoint);
        return new LeaderEpochFileCache(
            NAME,
            new LeaderEpochCheckpointFile(checkpoint, new LogDirFailureChannel(1)),
            new KafkaScheduler(1));
    }

    @Override
    public void close() throws IOException {
        segment.close();
    }
}
